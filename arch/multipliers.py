"""The ways in which the array's elements multiply."""

from typing import NamedTuple

from celosia.arch.formats import OPERAND_BITS


class Multiplier(NamedTuple):
    """Multiplication of elements: shared multipliers of columns, and weight bits of a pass."""

    packed: bool
    """Two columns share each multiplier, which makes both products in one; adders separate products
    that overlap."""
    pass_width: int
    """Bits of a weight that an element multiplies in a cycle (bits). Wider weights take several
    passes."""


MULTIPLIERS = {
    "single": Multiplier(packed=False, pass_width=OPERAND_BITS),
    "shared": Multiplier(packed=True, pass_width=OPERAND_BITS),
    "nibbles": Multiplier(packed=False, pass_width=OPERAND_BITS // 2),
    "shared_nibbles": Multiplier(packed=True, pass_width=OPERAND_BITS // 2),
    "adders": Multiplier(packed=False, pass_width=1),
}
"""Values of the field ``multiplier``."""
