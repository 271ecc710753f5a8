"""Meaning of each operand of the instruction set."""

from arch.tables import own_table

OPERAND_MEANINGS: dict[str, str] = own_table("operands")["meanings"]
"""Meaning of each operand; the name is the same wherever it occurs."""
