"""Delays accumulator addresses until the array outputs their sums; reports finished commands."""

from amaranth.hdl import Cat, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import Engine
from celosia.hdl.component import Component
from celosia.hdl.memory.ram import Ram
from celosia.hdl.ports import EngineStatus
from celosia.hdl.stream.pipeline import delay, history

IN_FLIGHT_WIDTH = 9
"""Width of the number of commands in progress, enough for the latency of any array (bits)."""


class Retirement(Component):
    """Delays accumulator addresses until the array outputs their sums; reports finished commands.

    - ``acc_addr``: ``i_addr``, ``latency`` cycles later.
    - ``last``: 1 with the address of a command's last vector; ``push`` is then the mask of engines
      that receive a dependency token.
    - ``status.done``: 1 when the sums of the command with ``last`` are in the accumulators. The
      delay (cycles) is ``latency``, plus ``settle`` for the accumulators, minus ``dispatch`` until
      a waiting engine begins to read.
    - ``offered``: 1 while a command waits to be accepted.
    - ``taken``: 1 if a command is accepted.
    - ``named``: 1 while a command has further weight tiles to multiply.
    - ``waiting``: 1 while a read must wait; drives ``status.stall``.
    - ``working``: 1 from a command's first tile until its last sum is accumulated.
    """

    def __init__(self, *, addr_width: int, latency: int, settle: int, dispatch: int):
        super().__init__(
            {
                "offered": In(1),
                "taken": In(1),
                "named": In(1),
                "waiting": In(1),
                "last": In(1),
                "push": In(len(Engine)),
                "i_addr": In(addr_width),
                "acc_addr": Out(addr_width),
                "status": Out(EngineStatus()),
                "working": Out(1),
            }
        )

    def circuit(self, m):
        # A ring of memory words replaces all registers but the last.
        note = Cat(self.i_addr, self.push)
        turns = self.latency - 1
        m.submodules.ring = ring = Ram(len(note), turns)
        place = Signal(range(turns))
        following = Signal.like(place)
        with m.If(place != turns - 1):
            m.d.comb += following.eq(place + 1)
        m.d.sync += place.eq(following)
        push = Signal.like(self.push)
        m.d.comb += [
            ring.write_en.eq(1),
            ring.write_addr.eq(place),
            ring.write_data.eq(note),
            ring.read_en.eq(1),
            ring.read_addr.eq(following),
            Cat(self.acc_addr, push).eq(delay(m, ring.read_data, 1)),
        ]
        in_flight = Signal(IN_FLIGHT_WIDTH)
        settle = self.settle - self.dispatch
        done = delay(m, self.last, self.latency + settle, reset=True)
        # An accepted command counts one cycle later, because its path is long.
        taken = delay(m, self.taken, 1, reset=True)
        busy = Signal()
        m.d.sync += in_flight.eq(in_flight + taken - done)
        m.d.comb += [
            self.status.done.eq(done),
            self.status.push.eq(delay(m, push, settle)),
            busy.eq(taken | (in_flight != 0)),
            self.status.busy.eq(self.offered | busy),
            self.status.stall.eq(self.waiting),
        ]
        # An accepted command is working once it has named a tile.
        begun = Signal()
        m.d.sync += begun.eq((begun | self.named) & busy)
        behind = history(m, done, self.dispatch - 1)[1:]
        written = Cat(behind).any()
        m.d.comb += self.working.eq(self.named | (begun & busy) | written)
