"""Verilog from components, and descriptions for tools."""
