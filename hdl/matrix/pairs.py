"""Ports and multiplication of two adjacent columns or elements that share multipliers."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.arithmetic.multiplier import Multiplier, PackedMultiplier


def pair_members(side: str, beside: Any, product: Any) -> dict[str, Any]:
    """Return the ports by which two adjacent columns or array elements share multipliers.

    The right circuit has the multipliers: it receives the left circuit's weights on ``beside``, and
    returns their products on ``product``. The result is a dictionary from name to port, empty if
    ``side`` is "".
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
    """Connect a multiplier to ``a`` and ``weight``, and return their product.

    If a circuit on the left shares the multiplier, ``pair`` has the ports ``beside`` and
    ``product`` of :func:`pair_members`. ``product`` is then driven with ``a`` times the weight on
    ``beside``. Otherwise ``pair`` is None.
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
