"""FPGA builds: boards, devices, synthesis, place-and-route, bitstreams, and the host's link."""

assert __name__ == "celosia.fpga", "import celosia.fpga: fpga alone would be a second copy"
