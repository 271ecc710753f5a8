"""Benches and simulation harnesses."""

assert __name__ == "celosia.tb", "import celosia.tb: tb alone would be a second copy"
