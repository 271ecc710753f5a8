"""The microcoded machine: one core in the place of all engines."""
