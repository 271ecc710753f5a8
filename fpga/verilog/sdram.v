  wire [{width}:0] sdram_dq_o;
  wire sdram_dq_oe;
  assign sdram_dq = sdram_dq_oe ? sdram_dq_o : {{{bits}{{1'bz}}}};
  // The chip's clock rises where the machine's falls: commands and data are steady there.
  ODDRX1F sdram_clock (.SCLK(fast), .RST(1'b0), .D0(1'b0), .D1(1'b1), .Q(sdram_clk));
