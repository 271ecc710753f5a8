  SB_PLL40_PAD #(
    .FEEDBACK_PATH("SIMPLE"), .DIVR(4'd{reference}), .DIVF(7'd{feedback}), .DIVQ(3'd{output}),
    .FILTER_RANGE(3'd{filter})
  ) pll (
    .PACKAGEPIN(clk), .PLLOUTGLOBAL(fast), .LOCK(locked), .RESETB(1'b1), .BYPASS(1'b0)
  );
  assign loop = 1'b0;
