"""The weight slots that products in flight still need."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.config import Config
from celosia.hdl.component import Component

JOBS_AHEAD = 2
"""Tiles that compute or whose weights are in place or in flight."""

REGISTERED_AHEAD = 2
"""Tiles beyond these, of one vector each, that can wait in the register of what is asked for."""


class SlotGuard(Component):
    """Tells whether the first line of a tile, ``line`` of ``slot``, may be asked for.

    ``hold`` says that products will use ``slot``, in the order of the tiles; ``freed`` that the
    oldest of these, or the only one as it is held, has asked for the last of its vectors. ``free``
    where no product needs what is in ``slot``, from the cycle after ``freed`` on. With a systolic
    array two things more:

    As row r of the array sees vectors r cycles later than row 0, line r must come r cycles later.

    ``written`` says that line ``index`` of any slot is asked for. Rows of weights enter at the left
    and columns at the top: a row would meet an earlier column at an element if it entered as many
    cycles later as its index is higher. Hence the time of each line, less its index, must be
    later than that of the line before. Lines in ascending order from 0 always keep that.

    With ``registered`` what ``free`` says is computed in the cycle before: ``moves`` tells that
    ``slot`` and ``line`` will be ``next_slot`` and ``next_line`` then, else that they stay.
    """

    def __init__(self, config: Config):
        self.config = config
        self.depth = JOBS_AHEAD + REGISTERED_AHEAD * (
            config.control.registered + bool(config.formats)
        )
        self.lines = (
            max(config.array.rows, config.array.cols)
            if config.array.b_transpose
            else config.array.rows
        )
        members = {
            "slot": In(range(config.array.weight_depth)),
            "line": In(range(self.lines)),
            "hold": In(1),
            "freed": In(1),
            "written": In(1),
            "index": In(range(self.lines)),
            "free": Out(1),
        }
        if config.control.registered:
            members |= {
                "moves": In(1),
                "next_slot": In(range(config.array.weight_depth)),
                "next_line": In(range(self.lines)),
            }
        super().__init__(members)

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
        needed = [(level > place, slot) for place, slot in enumerate(held)]
        recent = []
        since = Signal(range(self.lines + 1), init=self.lines)
        oldest = Mux(level == 0, self.slot, held[0])
        if self.config.array.kind == "systolic":
            recent = self._skew(m, oldest, since)
        if not self.config.control.registered:
            m.d.comb += self.free.eq(self._free(self.slot, self.line, needed, recent[1:], since))
            return m
        # As it will be in the next cycle.
        alone = level == 0
        needed[0] = (~alone & ~self.freed, held[0])
        needed.append((self.hold & ~(alone & self.freed), self.slot))
        stays = self._free(self.slot, self.line, needed, recent[:-1], since, ahead=True)
        moved = self._free(self.next_slot, self.next_line, needed, recent[:-1], since, ahead=True)
        m.d.sync += self.free.eq(Mux(self.moves, moved, stays))
        return m

    def _free(self, slot, line, needed, recent, since, *, ahead=False):
        """Return whether ``line`` of ``slot`` may be asked for, or may in the cycle after."""
        busy = [valid & (kept == slot) for valid, kept in needed]
        if self.config.array.kind == "systolic":
            # What was freed so many cycles ago is still being read by rows below.
            busy += [
                valid & (left == slot) & (line > age) for age, (valid, left) in enumerate(recent)
            ]
            early = Mux(self.written, line > self.index, line > since) if ahead else line >= since
            busy.append(early)
        return ~Cat(busy).any()

    def _skew(self, m, oldest, since):
        """Return what is freed and was, newest first; count the cycles since a line.

        ``since`` is the cycles since the line before, and its index.
        """
        recent = [(self.freed, oldest)]
        for age in range(self.lines - 1):
            left = Signal.like(self.slot, name=f"left_{age}")
            left_valid = Signal(name=f"left_valid_{age}")
            m.d.sync += [left_valid.eq(recent[-1][0]), left.eq(recent[-1][1])]
            recent.append((left_valid, left))
        with m.If(self.written):
            m.d.sync += since.eq(self.index + 1)
        with m.Elif(since != self.lines):
            m.d.sync += since.eq(since + 1)
        return recent
