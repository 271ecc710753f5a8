  wire steady;
  (* ICP_CURRENT="12", LPF_RESISTOR="8", MFG_ENABLE_FILTEROPAMP="1", MFG_GMCREF_SEL="2" *)
  EHXPLLL #(
    .CLKI_DIV({input_divider}), .CLKFB_DIV({feedback}), .FEEDBK_PATH("CLKOP"),
    .CLKOP_ENABLE("ENABLED"), .CLKOP_DIV({primary}), .CLKOP_CPHASE({primary_phase}),
    .CLKOS_ENABLE("ENABLED"), .CLKOS_DIV({secondary}), .CLKOS_CPHASE({secondary_phase})
  ) pll (
    .CLKI(clk), .CLKFB(loop), .CLKOP(loop), .CLKOS(steady), .LOCK(locked),
    .RST(1'b0), .STDBY(1'b0), .PHASESEL0(1'b0), .PHASESEL1(1'b0), .PHASEDIR(1'b0),
    .PHASESTEP(1'b0), .PHASELOADREG(1'b0), .PLLWAKESYNC(1'b0), .ENCLKOP(1'b0), .ENCLKOS(1'b0)
  );
