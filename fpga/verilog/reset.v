  reg [7:0] waited = 0;
  reg held = 1;
  always @(posedge fast) begin
    waited <= locked ? waited + !(&waited) : 0;
    held <= !(&waited);
  end
  assign rst = held;
