"""Compiler from a quantized model to instructions: tiling, scratchpad buffers and schedules."""
