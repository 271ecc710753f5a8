  // Nothing moves before the clock is steady. Registers begin as they were configured: a reset has
  // no wires of its own here, and would take as many as there are registers.
  reg [7:0] waited = 0;
  reg open = 0;
  always @(posedge clk) begin
    waited <= locked ? waited + !(&waited) : 0;
    open <= &waited;
  end
  DCCA gate (.CLKI(steady), .CE(open), .CLKO(fast));
  assign rst = 1'b0;
