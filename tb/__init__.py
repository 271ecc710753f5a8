"""Testbenches, simulation harnesses and verification of the circuits."""

assert __name__ == "celosia.tb", "import celosia.tb: tb alone would be a second copy"
