"""The command line."""

assert __name__ == "celosia.cli", "import celosia.cli: cli alone would be a second copy"
