"""Benches and simulation harnesses."""
