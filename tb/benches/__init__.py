"""cocotb benches of the accelerator's units: random commands, models of external memory."""
