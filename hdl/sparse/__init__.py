"""The zero-skip multiply-accumulate unit."""
