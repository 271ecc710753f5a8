"""Test coverage of the circuits (line and toggle) and of the instruction set (functional)."""
