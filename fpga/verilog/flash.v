  wire flash_clock;
  wire [3:0] flash_dq_o, flash_dq_oe;
