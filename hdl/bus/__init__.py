"""Bridges to standard buses: AXI4, AXI4-Lite, Wishbone."""
