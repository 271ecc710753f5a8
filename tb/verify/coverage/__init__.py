"""Coverage of the circuits and of the instruction set by tests."""
