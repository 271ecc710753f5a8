"""Registers that carry a value along a pipeline."""

from amaranth.hdl import Module, Signal, Value, ValueLike


def delay(
    m: Module, value: ValueLike, cycles: int, *, en: ValueLike = 1, reset: bool = False
) -> Value:
    """Return a value as it was ``cycles`` cycles with ``en`` at 1 ago.

    The registers are added to ``m`` in the domain ``sync``. With ``reset``, for bits that say
    whether others mean something, they are 0 after a reset; else what comes out within the first
    ``cycles`` cycles is stale. Identical delays of one value are merged by synthesis.
    """
    value = Value.cast(value)
    for _ in range(cycles):
        register = Signal(value.shape(), reset_less=not reset)
        with m.If(en):
            m.d.sync += register.eq(value)
        value = register
    return value
