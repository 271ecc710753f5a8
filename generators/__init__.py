"""Generators: they make Verilog from parameters, and machine programs from trained models."""

assert __name__ == "celosia.generators", "import celosia.generators: this is a second copy"
