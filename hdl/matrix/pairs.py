"""Ports and multiplication of two adjacent columns or elements that share multipliers."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.arithmetic.multiplier import Multiplier, PackedMultiplier


def pair_members(side: str, beside: Any, product: Any) -> dict[str, Any]:
    """Return the ports between two neighbours that share the right neighbour's multipliers.

    The result is a dictionary from name to port, for the neighbour on side ``side``: ``left`` or
    ``right``. If ``side`` is "", there is no pair, and the dictionary is empty. The left neighbour
    outputs its weight on ``beside``, and receives its product on ``product``. The arguments
    ``beside`` and ``product`` are the shapes of these ports.
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

    The activation is ``a``, and the weight is the low ``b_width`` bits of ``weight``. If the
    multiplier also multiplies ``a`` by the left neighbour's weight, ``pair`` is the pair of ports
    ``beside`` (that weight) and ``product`` (its product). Otherwise ``pair`` is None.
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
