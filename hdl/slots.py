"""Which weight slots the products under way still need."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config

JOBS_AHEAD = 2
"""Tiles that compute or whose weights are in place or on their way."""

TRANSPOSED_AHEAD = 3
"""Tiles beyond these that can be in the transposer."""

REGISTERED_AHEAD = 2
"""Tiles beyond these, of one vector each, that can wait in the register of what is asked for."""


class SlotGuard(wiring.Component):
    """Tells whether the first line of a tile, ``line`` of ``slot``, may be asked for.

    ``hold`` says that products will use ``slot``, in the order of the tiles; ``freed`` that the
    oldest of these, or the only one as it is held, has asked for the last of its vectors. ``free``
    where no product needs what is in ``slot``, from the cycle after ``freed`` on. With a systolic
    array two things more:

    As row r of the array sees vectors r cycles later than row 0, line r must come r cycles later.

    ``written`` says that line ``index`` of any slot is asked for. Rows of weights enter at the left
    and columns at the top: a row would meet an earlier column at an element if it came as many
    cycles later as its index is higher. Hence the time of each line, less its index, must be
    later than that of the line before. Lines in ascending order from 0 always keep that.
    """

    def __init__(self, config: Config):
        self.config = config
        self.depth = JOBS_AHEAD + TRANSPOSED_AHEAD * config.a_transpose
        self.depth += REGISTERED_AHEAD * config.registered
        self.lines = max(config.rows, config.cols) if config.b_transpose else config.rows
        super().__init__(
            {
                "slot": In(range(config.weight_depth)),
                "line": In(range(self.lines)),
                "hold": In(1),
                "freed": In(1),
                "written": In(1),
                "index": In(range(self.lines)),
                "free": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        held = [Signal.like(self.slot, name=f"held_{place}") for place in range(self.depth)]
        level = Signal(range(self.depth + 1))
        m.d.sync += level.eq(level + self.hold - self.freed)
        for place, slot in enumerate(held):
            with m.If(level - self.freed == place):
                m.d.sync += slot.eq(self.slot)
            with m.Elif(self.freed):
                m.d.sync += slot.eq(held[min(place + 1, self.depth - 1)])
        needed = [(level > place) & (slot == self.slot) for place, slot in enumerate(held)]
        m.d.comb += self.free.eq(~Cat(needed).any())
        if self.config.array == "systolic":
            self._skew(m, Mux(level == 0, self.slot, held[0]))
        return m

    def _skew(self, m, oldest):
        """Wait for the rows further down, and for lines that cross the array."""
        # What was freed so many cycles ago is still being read by rows below.
        needed = []
        recent, valid = oldest, self.freed
        for age in range(self.lines - 1):
            left = Signal.like(self.slot, name=f"left_{age}")
            left_valid = Signal(name=f"left_valid_{age}")
            m.d.sync += [left.eq(recent), left_valid.eq(valid)]
            recent, valid = left, left_valid
            needed.append(left_valid & (left == self.slot) & (self.line > age))

        # Cycles since the line before, and its index.
        since = Signal(range(self.lines + 1), init=self.lines)
        with m.If(self.written):
            m.d.sync += since.eq(self.index + 1)
        with m.Elif(since != self.lines):
            m.d.sync += since.eq(since + 1)
        with m.If(Cat(needed).any() | (self.line >= since)):
            m.d.comb += self.free.eq(0)
