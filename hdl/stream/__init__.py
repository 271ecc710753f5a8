"""Registers in streams and pipelines."""
