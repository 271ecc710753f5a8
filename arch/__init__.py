"""The contract that every other package reads: configuration, instruction set, numerics."""

assert __name__ == "celosia.arch", "import celosia.arch: arch alone would be a second copy"
