"""Memories on the chip, and the engines that copy data between them and external memory."""
