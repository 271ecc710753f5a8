"""Generation of Verilog from components, with descriptions for other tools."""
