"""Generation of Verilog from components, and of files that describe it for other tools."""
