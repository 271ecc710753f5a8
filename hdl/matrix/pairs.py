"""Pairs of neighbours in the array that share multipliers."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.arithmetic.multiplier import Multiplier, PackedMultiplier


def pair_members(side: str, beside: Any, product: Any) -> dict[str, Any]:
    """Return the ports between two neighbours that share the right neighbour's multipliers.

    ``side`` is that of the neighbour with these ports, ``left`` or ``right``. If it is "", there is
    no pair, and the dictionary is empty. The left neighbour outputs its weight on ``beside``, and
    receives its product on ``product``; the arguments are the shapes of these ports.
    """
    if not side:
        return {}
    sends, receives = (Out, In) if side == "left" else (In, Out)
    return {"beside": sends(beside), "product": receives(product)}


def multiply_weight(
    m: Module,
    multiplier: Multiplier | PackedMultiplier,
    a: Value,
    weight: Value,
    pair: tuple[Value, Value] | None,
) -> Value:
    """Connect a multiplier to an activation and a weight, and return their product.

    The weight is the low ``b_width`` bits of ``weight``. ``pair`` has the ports ``beside`` and
    ``product`` of a right neighbour, which multiplies ``a`` by the left neighbour's weight as well;
    otherwise it is None.
    """
    m.d.comb += multiplier.a.eq(a)
    own = weight[: multiplier.b_width]
    if pair is None:
        m.d.comb += multiplier.b.eq(own)
        return multiplier.p
    beside, product = pair
    m.d.comb += [
        multiplier.b[0].eq(beside[: multiplier.b_width]),
        multiplier.b[1].eq(own),
        product.eq(multiplier.p[0]),
    ]
    return multiplier.p[1]
