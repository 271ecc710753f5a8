"""Generates the addresses of a walk, which is a tile-by-tile pass over a matrix in memory.

A beat of the walk is some adjacent columns of one row of a tile.
"""

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import COUNT_WIDTH
from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import slices


def walk_layout(addr_width: int, *, wraps: bool = False) -> data.StructLayout:
    """Return the layout of a :class:`Walker`'s input: a description of the addresses of a matrix.

    The unit of addresses and steps is a byte of the scratchpad, a parameter word, or a row of
    accumulators. Only if ``wraps`` is true, there is a field ``period``.
    """
    period = {"period": unsigned(addr_width)} if wraps else {}
    return data.StructLayout(
        {
            **period,
            "base": unsigned(addr_width),  # of the first beat
            "beat_step": unsigned(addr_width),
            "row_step": unsigned(addr_width),
            "tile_step": unsigned(addr_width),
            "m": unsigned(COUNT_WIDTH),  # rows
            "n": unsigned(COUNT_WIDTH),  # columns
            "beat": unsigned(COUNT_WIDTH),  # columns of a beat
            "tile": unsigned(COUNT_WIDTH),  # columns of a tile
        }
    )


def place_layout(addr_width: int) -> data.StructLayout:
    """Return the layout of a :class:`Walker`'s output: the address and the end marks of a beat.

    A beat is some adjacent columns of a row. ``count`` is their number. ``row_last``, ``tile_last``
    and ``last`` mark the last beat of a row, of a tile (a group of columns) and of the matrix.
    """
    return data.StructLayout(
        {
            "addr": unsigned(addr_width),
            "count": unsigned(COUNT_WIDTH),
            "row_last": 1,
            "tile_last": 1,
            "last": 1,
        }
    )


def drive_walk_start(m: Module, walker: "Walker", start: Value, *, behind: bool) -> Value:
    """Let ``start`` begin a sequence of addresses of ``walker``; return 1 while it waits to begin.

    If ``behind`` is true, a sequence follows the previous one without a gap. ``walker.walk``
    describes the sequence, and must not change while the result is 1. If ``behind`` is false,
    sequences must not overlap.
    """
    if not behind:
        m.d.comb += walker.start.eq(delay(m, start, walker.stages, reset=True))
        return Const(0)
    owed, wanted, busy = Signal(), Signal(), Signal()
    m.d.comb += [
        # 0 cycles and 1 cycle behind ``start``.
        wanted.eq((start | owed, owed)[walker.stages]),
        busy.eq(walker.o.valid & ~(walker.o.ready & walker.o.p.last)),
        walker.start.eq(wanted & ~busy),
    ]
    m.d.sync += owed.eq((start | owed) & (busy | (0, start)[walker.stages]))
    return start | owed


def buffered_addresses(m: Module, walker: "Walker", *, forward: bool) -> wiring.PureInterface:
    """Return the stream of addresses of ``walker``, after two register slices or none.

    The slices exist if ``walker.stages`` is 1. If ``forward`` is true, the second slice stores one
    address instead of two, and needs less logic.
    """
    near = slices(m, walker.o, "near", stages=walker.stages)
    return slices(m, near, "ahead", stages=walker.stages, forward=forward)


class Walker(Component):
    """Generates the addresses of a matrix's beats (some adjacent columns of a row), one per cycle.

    ``start`` loads ``walk``, and the first beat follows in the next cycle. The columns form tiles
    of ``tile`` columns, and a tile's rows form beats of ``beat`` columns. ``o`` outputs all rows of
    a tile before the next tile.

    - ``base``: address of the first beat.
    - ``beat_step``, ``row_step``, ``tile_step``: distances between beats, rows and tiles.
    - ``period``: if not 0, distances from a row's begin are modulo ``period``. It must exceed
      ``beat_step`` and ``tile_step``.

    If ``stages`` is 1, ``walk`` must be valid one cycle before ``start``. Rows and columns are at
    least 1. Addresses are modulo ``2**addr_width``.
    """

    def __init__(self, addr_width: int, *, wraps: bool = False, stages: int = 0):
        super().__init__(
            {
                "start": In(1),
                "walk": In(walk_layout(addr_width, wraps=wraps)),
                "o": Out(stream.Signature(place_layout(addr_width))),
            }
        )

    def circuit(self, m):
        walk = Signal.like(self.walk, reset_less=True)
        addr = Signal(self.addr_width, reset_less=True)
        row_addr = Signal(self.addr_width, reset_less=True)
        tile_addr = Signal(self.addr_width, reset_less=True)
        columns = Signal(COUNT_WIDTH, reset_less=True)  # left in this row of the tile
        width = Signal(COUNT_WIDTH, reset_less=True)  # columns of the tile
        after = Signal(COUNT_WIDTH, reset_less=True)  # columns after this tile
        rows = Signal(COUNT_WIDTH, reset_less=True)  # rows left in the tile
        # End marks of the beat, registered with the numbers above: of row, tile and walk.
        row_last, bottom, right = Signal(), Signal(), Signal()
        narrow = Signal()  # one beat holds a row of the tile
        # For the next tile, known when this one begins: it is the last, and one beat holds a row.
        next_right, next_narrow = Signal(), Signal()
        both = Signal(COUNT_WIDTH + 1, reset_less=True)  # columns of a tile plus a beat

        tile_last, last = Signal(), Signal()
        m.d.comb += [
            tile_last.eq(row_last & bottom),
            last.eq(tile_last & right),
            self.o.p.addr.eq(addr),
            self.o.p.count.eq(Mux(row_last, columns, walk.beat)),
            self.o.p.row_last.eq(row_last),
            self.o.p.tile_last.eq(tile_last),
            self.o.p.last.eq(last),
        ]

        after_beat, after_tile = addr + walk.beat_step, tile_addr + walk.tile_step
        if self.wraps:
            (beat_back, beat_room), (tile_back, tile_room) = self._wrap(
                m, walk, row_last, tile_last
            )
            after_beat = Mux(beat_back, addr - beat_room, after_beat)
            after_tile = Mux(tile_back, tile_addr - tile_room, after_tile)

        def begin_tile(where, walk, left, fits, one_beat, rest, both):
            first = Mux(fits, left, walk.tile)
            return [
                addr.eq(where),
                row_addr.eq(where),
                tile_addr.eq(where),
                columns.eq(first),
                width.eq(first),
                after.eq(Mux(fits, 0, rest)),
                row_last.eq(one_beat),
                narrow.eq(one_beat),
                right.eq(fits),
                next_right.eq(left <= walk.tile << 1),
                next_narrow.eq((left <= both) | (walk.tile <= walk.beat)),
                rows.eq(walk.m),
                bottom.eq(walk.m == 1),
            ]

        with m.If(self.o.valid & self.o.ready):
            with m.If(last):
                m.d.sync += self.o.valid.eq(0)
            with m.Elif(tile_last):
                m.d.sync += begin_tile(
                    after_tile, walk, after, next_right, next_narrow, after - walk.tile, both
                )
            with m.Elif(row_last):
                m.d.sync += [
                    addr.eq(row_addr + walk.row_step),
                    row_addr.eq(row_addr + walk.row_step),
                    columns.eq(width),
                    row_last.eq(narrow),
                    rows.eq(rows - 1),
                    bottom.eq(rows == 2),
                ]
            with m.Else():
                m.d.sync += [
                    addr.eq(after_beat),
                    columns.eq(columns - walk.beat),
                    row_last.eq(columns <= walk.beat << 1),
                ]
        begun = self.walk
        known = (
            begun.n <= begun.tile,
            (begun.n <= begun.beat) | (begun.tile <= begun.beat),
            (begun.n - begun.tile)[:COUNT_WIDTH],
            begun.tile + begun.beat,
        )
        known = tuple(delay(m, value, self.stages) for value in known)
        with m.If(self.start):
            m.d.sync += [
                walk.eq(begun),
                *begin_tile(begun.base, begun, begun.n, *known),
                both.eq(known[-1]),
                self.o.valid.eq(1),
            ]

    def _wrap(self, m, walk, row_last, tile_last):
        """Return whether the steps to the next beat and tile wrap around, and by how much."""
        # Offsets of the tile and of the beat from the row's beginning in the first tile.
        begin = Signal(self.addr_width, reset_less=True)
        here = Signal(self.addr_width, reset_less=True)
        leads, following = [], []
        for name, origin in (("beat_step", here), ("tile_step", begin)):
            # The distance of a step that wraps, which also says whether it must.
            room = Signal(self.addr_width, name=f"{name}_room", reset_less=True)
            with m.If(self.start):
                m.d.sync += room.eq(self.walk.period - self.walk[name])
            back = (walk.period != 0) & (origin >= room)
            leads.append((back, room))
            # Compute both outcomes in parallel, because the comparison is late.
            following.append(Mux(back, origin - room, origin + walk[name])[: self.addr_width])
        with m.If(self.start):
            m.d.sync += [begin.eq(0), here.eq(0)]
        with m.Elif(self.o.valid & self.o.ready & (walk.period != 0)):
            with m.If(tile_last):
                m.d.sync += [begin.eq(following[1]), here.eq(following[1])]
            with m.Elif(row_last):
                m.d.sync += here.eq(begin)
            with m.Else():
                m.d.sync += here.eq(following[0])
        return leads
