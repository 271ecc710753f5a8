// {title}: clock generator, {begins} and pins around {core}.
module {top} ({ports});
  wire fast, locked, loop, rst;
{pll}{start}  wire {wires};
{outputs}{sdram}{flash}  {core} core (.clk(fast), .rst(rst){connections});
endmodule
