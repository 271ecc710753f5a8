"""Exports of a compiled model: files for a host, flash images, C sources, register descriptions."""
