"""The contract that every other package reads: configuration, instruction set, numerics."""
