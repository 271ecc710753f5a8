"""Exports of a compiled model: memory images, C sources, register descriptions."""
