"""Generators, which make Verilog from parameters and a program from a trained model."""

assert __name__ == "celosia.generators", "import celosia.generators: this is a second copy"
