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

    The constructor has three numbers of cycles:

    - ``latency``: from the address of a vector of activations on ``i_addr`` until the array outputs
      the vector's sums.
    - ``settle``: from the array's output of sums until a read of the accumulators includes them.
    - ``dispatch``: from ``status.done`` until a command that has waited for the dependency token
      can read the accumulators.

    ``acc_addr`` is ``i_addr``, delayed by ``latency`` cycles.

    ``last`` must be 1 in the cycle of the address of a command's last vector. In this cycle,
    ``push`` must be the mask of the engines that receive a dependency token. ``status.done`` is 1
    ``latency + settle - dispatch`` cycles later, and ``status.push`` is then the mask. An engine
    that receives the token reads the accumulators at least ``dispatch`` cycles later, so it reads
    complete sums.

    The other inputs report the state of the matrix engine:

    - ``offered``: 1 while a command waits in the command queue.
    - ``taken``: 1 in the cycle in which the engine accepts a command.
    - ``waiting``: 1 while the scratchpad delays a request. It drives ``status.stall``.
    - ``named``: 1 while the engine has a tile to load, or a tile with a product that has not begun.

    Two outputs report activity:

    - ``status.busy``: 1 while a command waits in the command queue or is in progress.
    - ``working``: 1 from the first tile of an accepted command until the last sum of all accepted
      commands is in the accumulators.
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
