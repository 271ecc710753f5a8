"""Delays the load of a weight slot until no product in flight needs the slot's old weights."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component

JOBS_AHEAD = 2
"""Largest number of tiles with products in progress, if there are no register stages."""

REGISTERED_AHEAD = 2
"""Number of further tiles with products in progress, for each register stage."""


class SlotGuard(Component):
    """Delays the load of a tile until no product needs the old weights in the tile's weight slot.

    A weight slot is storage in the array for one tile of weights. A load writes a tile to a slot,
    one line per cycle. A line is a row or a column of the tile. A product multiplies activations by
    the tile in a slot. The user reports these events:

    - A line is requested for a load: ``written`` is 1, and ``index`` is the number of the line in
      its tile.
    - A product with the tile in ``slot`` begins: ``hold`` is 1 for one cycle.
    - A product ends: ``freed`` is 1 in the cycle in which its last activations are requested.
      Products end in the order in which they begin. A product can end in the cycle in which it
      begins.

    ``free`` is 1 if a load to ``slot``, with the number ``line`` of its first line, may begin in
    this cycle. Three conditions must be met. The last two apply only if ``systolic`` is true:

    - No product with the tile in ``slot`` is in progress.
    - More than ``line`` cycles have passed since the end of the last product with the tile in
      ``slot``. The reason is that activations reach row r of the array r cycles later than row 0.
      For example, if the product ended in cycle 10, and ``line`` is 3, the load may begin in cycle
      14.
    - More than ``line - index`` cycles have passed since the last ``written``. The reason is that
      rows and columns enter the array at different edges, and must not meet. For example, if line 1
      was requested in cycle 10, and ``line`` is 5, the load may begin in cycle 15.

    At most ``2 + 2 * late`` products may be in progress. ``late`` is the number of register stages
    between ``hold`` and the requests of activations.
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

    The guard delays the load of a tile into a weight slot (storage for one tile) while a product
    needs the old weights. ``slot`` is the slot, and ``line`` the index of the first line (row or
    column) to load. ``free`` is 1 if this load may begin in the same cycle.

    The guard computes ``free`` one cycle ahead. So the user must announce in each cycle the
    ``slot`` and ``line`` of the next cycle:

    - If ``moves`` is 1: ``slot`` and ``line`` of the next cycle are ``next_slot`` and
      ``next_line``.
    - If ``moves`` is 0: ``slot`` and ``line`` of the next cycle are those of this cycle.
    """

    def _more_members(self):
        return {
            "moves": In(1),
            "next_slot": In(range(self.weight_depth)),
            "next_line": In(range(self.lines)),
        }

    def watch(self, m, tiles):
        """Connect the inputs that announce the next tile: ``moves``, ``next_slot``, ``next_line``.

        ``tiles`` is a :class:`~celosia.hdl.matrix.tiles.StagedTileWalker`, which outputs one tile
        after another. ``moves`` is 1 if it outputs another tile in the next cycle. ``next_slot`` is
        the weight slot (storage for one tile) of that tile, and ``next_line`` the first line of
        weights to load.
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
