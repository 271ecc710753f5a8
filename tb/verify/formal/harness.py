"""Harness for proofs of a circuit's properties, and common assumptions and assertions."""

from collections.abc import Callable, Mapping
from typing import Any

from amaranth.hdl import Array, Assert, Assume, Module, Mux, ResetSignal, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Harness(wiring.Component):
    """A circuit under proof, with the assumptions and assertions of the proof.

    ``ports`` are the circuit's ports. ``state(module, circuit, harness)`` adds the assumptions and
    assertions. ``probes`` maps further inputs to shapes; each input stands for a signal in the
    circuit. If ``reset`` is false, the circuit is never reset.
    """

    def __init__(
        self,
        dut: wiring.Component,
        state: Callable[[Module, Any, Any], None],
        probes: Mapping[str, Any] | None = None,
        *,
        reset: bool = False,
    ):
        self._dut = dut
        self._state = state
        self._reset = reset
        self._probes = dict(probes or {})
        inputs = {name: In(shape) for name, shape in self._probes.items()}
        super().__init__({"ports": Out(dut.signature), **inputs})

    def elaborate(self, _platform):
        """Connect the circuit's ports to the harness's ports; add assumptions and assertions."""
        m = Module()
        m.submodules.dut = self._dut
        wiring.connect(m, wiring.flipped(self.ports), self._dut)
        if not self._reset:
            m.d.comb += Assume(~ResetSignal("sync"))
        self._state(m, self._dut, self)
        return m


def _kept(stream: Any) -> tuple[Value, Value, Value]:
    return stream.valid, stream.ready, Value.cast(stream.payload)


def _held(m: Module, stream: Any) -> Value:
    """Return whether a stream still offers the payload that was not accepted a cycle ago."""
    valid, ready, payload = _kept(stream)
    waited = Signal()
    before = Signal(len(payload), reset_less=True)
    m.d.sync += [waited.eq(valid & ~ready), before.eq(payload)]
    return ~waited | (valid & (payload == before))


def assume_held(m: Module, stream: Any) -> None:
    """Add to ``m`` the assumption that ``stream`` keeps a payload until it is accepted.

    After a cycle in which ``valid`` is 1 and ``ready`` is 0, ``valid`` is still 1 and the payload
    is the same.
    """
    m.d.comb += Assume(_held(m, stream))


def assert_held(m: Module, stream: Any) -> None:
    """Add to ``m`` the assertion that ``stream`` keeps a payload until it is accepted.

    After a cycle in which ``valid`` is 1 and ``ready`` is 0, ``valid`` is still 1 and the payload
    is the same.
    """
    m.d.comb += Assert(_held(m, stream))


def transfers(stream: Any) -> Value:
    """Return a 1-bit value: whether a stream transfers its payload at the next clock edge."""
    return stream.valid & stream.ready


class ModelQueue:
    """A reference queue of at most ``depth`` entries, with which a circuit's queue is compared.

    At the end of a cycle, ``value`` is added if ``push`` is 1, and the oldest entry is removed if
    ``pop`` is 1. The registers are in the module ``m``; their names begin with ``name``.
    """

    def __init__(
        self, m: Module, depth: int, value: ValueLike, push: ValueLike, pop: ValueLike, name: str
    ):
        value = Value.cast(value)
        self.count = Signal(range(depth + 2), name=f"{name}_count")
        """Number of entries."""
        self.values = Array(
            Signal(len(value), name=f"{name}_{place}", reset_less=True) for place in range(depth)
        )
        """Entries; the first one is the oldest."""
        self.any = (self.count != 0) | push
        """1 if the queue is not empty or ``push`` is 1."""
        self.oldest = Mux(self.count == 0, value, self.values[0])
        """The oldest entry, or ``value`` if the queue is empty."""
        m.d.sync += self.count.eq(self.count + push - pop)
        for place in range(depth):
            behind = self.values[place + 1] if place + 1 < depth else value
            with m.If(pop):
                m.d.sync += self.values[place].eq(Mux(self.count == place + 1, value, behind))
            with m.Elif(push & (self.count == place)):
                m.d.sync += self.values[place].eq(value)
