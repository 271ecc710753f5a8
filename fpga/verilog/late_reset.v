  wire begun;
  reg late = 1'b1;
  always @(posedge fast) late <= begun;
  assign rst = late;
