"""From a quantized model to instructions: blocks, buffers, order."""
