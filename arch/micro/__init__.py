"""The microcoded machine's instructions and its microcode."""
