"""cocotb benches of the units, with random commands and models of external memory."""
