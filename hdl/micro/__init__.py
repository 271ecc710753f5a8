"""The microcoded machine: one core whose microcode does the work of all engines."""
