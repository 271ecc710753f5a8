"""The instruction set and the microcode of the microcoded machine."""
