"""Benches in cocotb, a unit each, with their random commands and model memories."""
