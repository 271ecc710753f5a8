  rPLL #(
    .FCLKIN("{input_mhz:g}"), .IDIV_SEL({input_divider}), .FBDIV_SEL({feedback}),
    .ODIV_SEL({output}), .DEVICE("{device}")
  ) pll (
    .CLKIN(clk), .CLKOUT(fast), .LOCK(locked), .RESET(1'b0), .RESET_P(1'b0), .CLKFB(1'b0),
    .FBDSEL(6'b0), .IDSEL(6'b0), .ODSEL(6'b0), .PSDA(4'b0), .DUTYDA(4'b0), .FDLY(4'b0)
  );
  assign loop = 1'b0;
