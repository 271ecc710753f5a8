"""Generators: from parameters to Verilog, and from a trained model to a program."""

assert __name__ == "celosia.generators", "import celosia.generators: this is a second copy"
