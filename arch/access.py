"""The size of accesses to the scratchpad."""

from dataclasses import dataclass


def next_power_of_two(value: int) -> int:
    """Return the smallest power of two that is at least ``value``, which is positive."""
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True)
class Access:
    """Properties of the accesses that an engine makes to the scratchpad (the on-chip memory).

    The fields are the width of an address (bits), the largest size of one access (bytes), and the
    alignment of addresses (bytes).
    """

    addr_width: int
    """Width of a byte address (bits)."""
    line_bytes: int
    """Most bytes that an access moves (bytes)."""
    align: int = 1
    """Addresses are multiples of this size (bytes)."""

    def lines(self, size: int) -> int:
        """Return the number of accesses (``line_bytes`` bytes each) that move ``size`` bytes."""
        return -(-size // self.line_bytes)
