"""Ports and multiplication of two adjacent columns or elements that share multipliers."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from celosia.hdl.arithmetic.multiplier import Multiplier, PackedMultiplier


def pair_members(side: str, beside: Any, product: Any) -> dict[str, Any]:
    """Return the ports through which two adjacent columns or array elements share multipliers.

    The circuit on the right has the multipliers. It receives the weights of the left circuit, and
    returns the products of these weights. The result is a dictionary from name to port, for the
    circuit at position ``side``:

    - For ``left``: an output ``beside`` for weights, and an input ``product``.
    - For ``right``: an input ``beside`` for the neighbour's weights, and an output ``product``.
    - For "", if the circuit shares no multipliers: no ports.

    The arguments ``beside`` and ``product`` are the shapes of the ports with the same names.
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
    """Connect a multiplier to an activation and a weight, and return the product of these two.

    The activation is ``a``, and the weight is the low ``b_width`` bits of ``weight`` (``b_width``
    is an attribute of ``multiplier``). If the multiplier is shared with the left neighbour
    (:func:`pair_members`), it also multiplies ``a`` by the neighbour's weight. ``pair`` is then a
    pair of ports: ``beside`` has the neighbour's weight, and ``product`` is driven with the second
    product. If the multiplier is not shared, ``pair`` is None.
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
