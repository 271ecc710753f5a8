"""cocotb benches, one for each unit, with their random commands and memory models."""
