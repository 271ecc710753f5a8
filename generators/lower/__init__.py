"""Compiler from quantized models to instructions: tiling, scratchpad buffers and schedules."""
