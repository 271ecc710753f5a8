"""The circuits."""

assert __name__ == "celosia.hdl", "import celosia.hdl: hdl alone would be a second copy"
