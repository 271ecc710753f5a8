"""Destinations of the sums that leave the array, and the completion of matrix commands."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import Engine
from celosia.hdl.component import Component
from celosia.hdl.memory.ram import Ram
from celosia.hdl.ports import EngineStatus
from celosia.hdl.stream.pipeline import delay, history

IN_FLIGHT_WIDTH = 9
"""Width of the number of commands in progress, enough for the latency of any array (bits)."""


class Retirement(Component):
    """Delays the accumulator address of each vector until the array has computed the sums.

    ``acc_addr`` is the address that ``i_addr`` had ``latency`` cycles before. ``settle`` is the
    number of cycles from the accumulation of a sum until the sum can be read.

    The input ``last`` is 1 for the last vector of a command. In the same cycle, ``push`` is the
    mask of the engines that receive a token when the command is done. ``status.done`` is 1
    ``latency + settle - dispatch`` cycles after ``last``. So a read of the accumulators finds
    complete sums from ``dispatch`` cycles after ``status.done`` on.

    The engine drives the inputs ``offered``, ``taken``, ``waiting`` and ``named``. ``offered`` is 1
    while a command waits in the queue, and ``taken`` is 1 in the cycle in which the engine accepts
    a command. ``status.busy`` is 1 while a command waits or is not done. ``waiting`` is 1 while the
    scratchpad delays a request; it is output as ``status.stall``. ``named`` is 1 while the weight
    fetcher has a tile to process. The output ``working`` is 1 from a command's first tile until the
    last sum of all accepted commands has been written.
    """

    def __init__(self, *, addr_width: int, latency: int, settle: int, dispatch: int):
        self.latency = latency
        self.settle = settle
        self.dispatch = dispatch
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

    def elaborate(self, _platform):
        m = Module()
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
        return m
