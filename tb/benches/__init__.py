"""cocotb benches that test the accelerator's units with random commands and models of memory."""
