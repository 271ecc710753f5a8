"""Memories on the chip, and the engines that load and store them."""
