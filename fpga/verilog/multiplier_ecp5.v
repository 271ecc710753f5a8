// The multiplier of an ECP5 with its own registers, which does what {behavioural} does.
module {name} ({ports});
  wire [17:0] left = a << {a_zeros};
  wire [17:0] right = b << {b_zeros};
  wire signed [35:0] product;
  assign p = product >>> {zeros};
  MULT18X18D #(
    .REG_INPUTA_CLK("CLK0"), .REG_INPUTA_CE("CE0"), .REG_INPUTA_RST("RST1"),
    .REG_INPUTB_CLK("CLK0"), .REG_INPUTB_CE("CE0"), .REG_INPUTB_RST("RST1"),
    .REG_OUTPUT_CLK("CLK0"), .REG_OUTPUT_CE("CE1"), .REG_OUTPUT_RST("RST0"),
    .RESETMODE("SYNC"), .GSR("DISABLED")
  ) multiplier (
    .CLK0(clk), .CE0({en}), .CE1({move}), .RST0({clear}), .RST1(1'b0),
    .SIGNEDA(1'b1), .SIGNEDB(1'b1), .SOURCEA(1'b0), .SOURCEB(1'b0),
{connections}
  );
endmodule
