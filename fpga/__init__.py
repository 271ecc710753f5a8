"""Boards."""

assert __name__ == "celosia.fpga", "import celosia.fpga: fpga alone would be a second copy"
