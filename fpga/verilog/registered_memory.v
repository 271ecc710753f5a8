{comment}// With the register behind it in the block RAMs: read_data takes the next word in a cycle with take.
module {name} (
{ports},
  input  wire take,
  input  wire clear
);
  // The block RAMs' own reset would clear their latches as well.
  reg cleared = 1'b0;
  wire {range}held;
  assign read_data = cleared ? {width}'d0 : held;
  always @(posedge clk)
    if (clear)
      cleared <= 1'b1;
    else if (take)
      cleared <= 1'b0;
  {blocks} blocks ({connections}, .take(take), .held(held));
endmodule
