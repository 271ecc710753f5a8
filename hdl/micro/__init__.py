"""The microcoded machine: one core that does the work of all engines."""
