module {blocks} (
{ports},
  input  wire take
);
  wire {range}word;
  reg {range}register = {width}'d0;
  assign held = register;
  always @(posedge clk)
    if (take)
      register <= word;
  {memory} memory ({connections}, .read_data(word));
endmodule
