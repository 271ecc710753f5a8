"""Registers that delay values along a pipeline."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, ValueLike

KEPT = {"keep": 1}
"""Attributes of a duplicated register, so that synthesis does not merge the duplicates."""


def delay(
    m: Module,
    value: ValueLike,
    cycles: int,
    *,
    en: ValueLike = 1,
    reset: bool = False,
    name: str = "",
) -> Value:
    """Return ``value`` delayed by ``cycles`` cycles, counting only cycles in which ``en`` is 1.

    If ``reset`` is true, a reset sets the delay registers to 0; otherwise it does not change them.
    ``name`` is the name of the registers, by default the name of the variable that receives the
    result.
    """
    value = Value.cast(value)
    # The variable that the caller assigns to, where it does.
    name = name or Signal(src_loc_at=1).name
    named = not name.startswith("$")
    for cycle in range(1, cycles + 1):
        own = f"{name}_{cycle}" if cycle < cycles else name
        register = Signal(value.shape(), name=own if named else "", reset_less=not reset)
        with m.If(en):
            m.d.sync += register.eq(value)
        value = register
    return value


def domain_of(m: Module, stages: int) -> Any:
    """Return the Amaranth domain whose assignments have a delay of ``stages`` cycles (0 or 1).

    The domain is ``m.d.comb`` for 0 stages and ``m.d.sync`` for 1.
    """
    return (m.d.comb, m.d.sync)[stages]


def near(m: Module, value: ValueLike, *, stages: int = 1, reset: bool = False) -> ValueLike:
    """Return ``value`` delayed by a register that synthesis does not merge with equal registers.

    The register can be placed near the logic that reads it. If ``stages`` is 0, the result is
    ``value`` itself. If ``reset`` is true, a reset sets the register to 0.
    """
    for _ in range(stages):
        shape = Value.cast(value).shape()
        register = Signal(shape, name="near", reset_less=not reset, attrs=dict(KEPT))
        m.d.sync += register.eq(value)
        value = register
    return value


def data_register(m: Module, port: Any, *, stages: int = 1) -> Any:
    """Return a register without reset that drives ``port``; the caller assigns data to it.

    If ``stages`` is 0, the result is ``port`` itself, without a register. The data need a separate
    valid bit.
    """
    for _ in range(stages):
        # Without reset, it can be a block RAM's output register.
        register = Signal.like(port, name=f"{Value.cast(port).name}_register", reset_less=True)
        m.d.comb += port.eq(register)
        port = register
    return port


def spread(m: Module, value: ValueLike, ends: Sequence[Value], *, stages: int = 1) -> None:
    """Drive each of the signals ``ends`` with ``value``, delayed by ``stages`` cycles (0 or 1).

    If ``stages`` is 1, each signal has a separate register. Synthesis does not merge the registers,
    so that each can be placed near the logic that it drives. If ``stages`` is 0, there is no
    register.
    """
    if not stages:
        m.d.comb += [end.eq(value) for end in ends]
        return
    if len(ends) == 1:
        m.d.sync += ends[0].eq(value)
        return
    for end in ends:
        near = Signal(end.shape(), reset_less=True, attrs=dict(KEPT))
        m.d.sync += near.eq(value)
        m.d.comb += end.eq(near)


def history(m: Module, valid: ValueLike, cycles: int) -> list[Value]:
    """Return a list: element i is ``valid`` delayed by i cycles, for i from 0 to ``cycles``.

    A reset sets all elements except the first to 0.
    """
    found = [Value.cast(valid)]
    for _ in range(cycles):
        found.append(delay(m, found[-1], 1, reset=True))
    return found


def ring(m: Module, value: ValueLike, cycles: int, *, en: ValueLike = 1) -> Value:
    """Return ``value`` delayed by ``cycles`` cycles, through a ring of registers.

    Only cycles in which ``en`` is 1 count. In each such cycle the register with the oldest value
    outputs it, and loads the new value. So fewer registers toggle than in :func:`delay`, at the
    cost of a multiplexer.
    """
    value = Value.cast(value)
    if cycles < 2:
        return delay(m, value, cycles, en=en)
    words = [
        Signal(value.shape(), name=f"word_{place}", reset_less=True) for place in range(cycles)
    ]
    place = Signal(range(cycles))
    found = Signal(value.shape())
    m.d.comb += found.eq(Array(words)[place])
    with m.If(en):
        m.d.sync += place.eq(Mux(place == cycles - 1, 0, place + 1))
    for index, word in enumerate(words):
        with m.If(en & (place == index)):
            m.d.sync += word.eq(value)
    return found


def stairs(m: Module, values: Sequence[ValueLike], *, reset: bool = False) -> list[Value]:
    """Return a list in which value i of ``values`` is delayed by i + 1 cycles.

    There is one wide register for each cycle of delay. The n-th register holds all values that are
    delayed by n cycles or more. ``reset`` is as in :func:`delay`.
    """
    rest = [Value.cast(value) for value in values]
    found = []
    for step in range(len(rest)):
        held = Signal(sum(len(value) for value in rest), name=f"step_{step}", reset_less=not reset)
        m.d.sync += held.eq(Cat(rest))
        parts, low = [], 0
        for value in rest:
            part = held[low : low + len(value)]
            parts.append(part.as_signed() if value.shape().signed else part)
            low += len(value)
        found.append(parts[0])
        rest = parts[1:]
    return found
