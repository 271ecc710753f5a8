"""Delays the load of a weight slot until no product in flight needs the slot's old weights."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

JOBS_AHEAD = 2
"""Largest number of tiles with products in progress, if there are no register stages."""

REGISTERED_AHEAD = 2
"""Number of further tiles with products in progress, for each register stage."""


class SlotGuard(Component):
    """Delays the load of a weight tile until no product needs the old tile in the same slot.

    A slot is the array's storage for one tile. A line is a row or column of a tile.

    - ``slot``, ``line``: the slot to load, and the number of the first line to load.
    - ``free``: 1 if the load may begin in this cycle.
    - ``hold``: 1 if a multiplication by the tile in ``slot`` begins.
    - ``freed``: 1 if the oldest multiplication requests its last activations.
    - ``written``: 1 if line ``index`` of a load is requested.

    At most ``2 + 2 * late`` multiplications may be in progress.
    """

    def __init__(self, *, lines: int, weight_depth: int, late: int, systolic: bool):
        self.depth = JOBS_AHEAD + REGISTERED_AHEAD * late
        members = {
            "slot": In(range(weight_depth)),
            "line": In(range(self.lines)),
            "hold": In(1),
            "freed": In(1),
            "written": In(1),
            "index": In(range(self.lines)),
            "free": Out(1),
        }
        super().__init__(members | self._more_members())

    def _more_members(self):
        """Return further ports."""
        return {}

    def watch(self, m, tiles):
        """Do nothing, because this class has no inputs that describe the next tile.

        ``tiles`` is the :class:`~celosia.hdl.matrix.tiles.TileWalker` that generates the tiles. The
        subclass :class:`StagedSlotGuard` has such inputs, and connects them in its method
        ``watch``.
        """

    def circuit(self, m):
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
        if self.systolic:
            recent = self._skew(m, oldest, since)
        self._decide(m, level == 0, needed, recent, since)

    def _decide(self, m, empty, needed, recent, since):
        """Drive ``free`` from the slots ``needed`` and those freed; ``empty``: none is held."""
        m.d.comb += self.free.eq(self._free(self.slot, self.line, needed, recent[1:], since))

    def _free(self, slot, line, needed, recent, since, *, ahead=False):
        """Return whether ``line`` of ``slot`` may be requested now or, ``ahead``, a cycle later."""
        busy = [valid & (kept == slot) for valid, kept in needed]
        if self.systolic:
            # A slot freed ``age`` cycles ago is still being read by rows below.
            busy += [
                valid & (left == slot) & (line > age) for age, (valid, left) in enumerate(recent)
            ]
            # Rows and columns enter at different edges, and must not meet.
            early = Mux(self.written, line > self.index, line > since) if ahead else line >= since
            busy.append(early)
        return ~Cat(busy).any()

    def _skew(self, m, oldest, since):
        """Return the slots freed in recent cycles, newest first, and count cycles since a line.

        ``since`` is the number of cycles since the last line, plus its index.
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


class StagedSlotGuard(SlotGuard):
    """A :class:`SlotGuard` whose output ``free`` comes from a register.

    The user announces the inputs of the next cycle. If ``moves`` is 1, ``slot`` and ``line`` will
    be ``next_slot`` and ``next_line``. If ``moves`` is 0, ``slot`` and ``line`` will not change.
    """

    def _more_members(self):
        return {
            "moves": In(1),
            "next_slot": In(range(self.weight_depth)),
            "next_line": In(range(self.lines)),
        }

    def watch(self, m, tiles):
        """Connect ``moves``, ``next_slot`` and ``next_line`` to the outputs of ``tiles``.

        ``tiles`` is the :class:`~celosia.hdl.matrix.tiles.StagedTileWalker` that generates the
        weight tiles.
        """
        m.d.comb += [
            self.moves.eq(tiles.moves),
            self.next_slot.eq(tiles.following.slot),
            self.next_line.eq(tiles.following.line),
        ]

    def _decide(self, m, empty, needed, recent, since):
        (_, oldest), *_ = needed
        needed[0] = (~empty & ~self.freed, oldest)
        needed.append((self.hold & ~(empty & self.freed), self.slot))
        stays = self._free(self.slot, self.line, needed, recent[:-1], since, ahead=True)
        moved = self._free(self.next_slot, self.next_line, needed, recent[:-1], since, ahead=True)
        m.d.sync += self.free.eq(Mux(self.moves, moved, stays))


SLOT_GUARDS = (SlotGuard, StagedSlotGuard)
"""Classes of the slot guard, by a configuration's ``stages`` (0 or 1)."""
