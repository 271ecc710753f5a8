"""Compiler: from a quantized model to instructions, with tiling, buffers and schedules."""
