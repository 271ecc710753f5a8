"""Golden models of the circuits, in plain integer NumPy."""

assert __name__ == "celosia.sim", "import celosia.sim: sim alone would be a second copy"
