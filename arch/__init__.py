"""Definitions that every other package reads: configuration, instruction set, number formats."""

assert __name__ == "celosia.arch", "import celosia.arch: arch alone would be a second copy"
