"""The command line of Celosia."""

assert __name__ == "celosia.cli", "import celosia.cli: cli alone would be a second copy"
