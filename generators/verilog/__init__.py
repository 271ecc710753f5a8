"""Verilog from components, and the descriptions beside it."""
