"""Classifies the cycles of a run: work of the multiplier array, or the cause of an idle cycle."""

from amaranth.hdl import Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import Engine
from celosia.hdl.component import Component


class ArrayAccount(Component):
    """Classifies each cycle of a run: work of the matrix array, or the cause of its idleness.

    If ``running`` was 1 in the previous cycle, one output is 1, otherwise none. It is the first in
    this list whose input, in parentheses, was 1 in the previous cycle:

    - ``product``: a vector enters the array (``sends``).
    - ``memory``: the scratchpad keeps a vector waiting (``refused``).
    - ``fill``: weights are loaded (``filling``).
    - ``wait_NAME``: the next command waits for engine NAME (``lacking``).
    - ``fill``: sums are still in the pipeline (``busy``).
    - ``queue``: no command, as another engine's queue is full (``blocked``).
    - ``over``: no command, as the program has ended (``halted``).
    - ``fetch``: no command yet.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "running": In(1),
                "sends": In(1),
                "refused": In(1),
                "filling": In(1),
                "lacking": In(len(Engine)),
                "busy": In(1),
                "blocked": In(1),
                "halted": In(1),
                "product": Out(1),
                "memory": Out(1),
                "fill": Out(1),
                "queue": Out(1),
                "over": Out(1),
                "fetch": Out(1),
                **{f"wait_{engine.name.lower()}": Out(1) for engine in self.sources()},
            }
        )

    @staticmethod
    def sources() -> list[Engine]:
        """Return the engines that a matrix command can wait for: all except the matrix engine."""
        return [engine for engine in Engine if engine != Engine.MATRIX]

    def circuit(self, m):
        names = ("running", "sends", "refused", "filling", "lacking", "busy", "blocked", "halted")
        before = {name: Signal.like(getattr(self, name)) for name in names}
        m.d.sync += [late.eq(getattr(self, name)) for name, late in before.items()]
        with m.If(~before["running"]):
            pass
        with m.Elif(before["sends"]):
            m.d.comb += self.product.eq(1)
        with m.Elif(before["refused"]):
            m.d.comb += self.memory.eq(1)
        with m.Elif(before["filling"]):
            m.d.comb += self.fill.eq(1)
        for engine in self.sources():
            with m.Elif(before["lacking"][engine]):
                m.d.comb += getattr(self, f"wait_{engine.name.lower()}").eq(1)
        with m.Elif(before["busy"]):
            m.d.comb += self.fill.eq(1)
        with m.Elif(before["blocked"]):
            m.d.comb += self.queue.eq(1)
        with m.Elif(before["halted"]):
            m.d.comb += self.over.eq(1)
        with m.Else():
            m.d.comb += self.fetch.eq(1)
