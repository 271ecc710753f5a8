"""cocotb benches, one for each unit, with random commands and models of external memory."""
