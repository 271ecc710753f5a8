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
    """Return the layout of a :class:`Walker`'s input ``walk``, from which it generates addresses.

    The addresses are those of the beats of a matrix. A beat is some adjacent columns of a row; a
    tile is a wider group of columns, which has one or more beats per row. Addresses and steps have
    the unit of the memory: bytes of the scratchpad, or words of a parameter memory, or rows of
    accumulators.

    - ``base``: the address of the first beat.
    - ``beat_step``, ``row_step`` and ``tile_step``: the distances between the addresses of adjacent
      beats, rows and tiles.
    - ``m`` and ``n``: the numbers of rows and columns of the matrix.
    - ``beat`` and ``tile``: the numbers of columns of a beat and of a tile.
    - ``period`` (only if ``wraps`` is true): if it is not 0, the addresses of a row repeat after
      ``period`` bytes. All attention heads of a row can then use the same cosines and sines.
    """
    period = {"period": unsigned(addr_width)} if wraps else {}
    return data.StructLayout(
        {
            **period,
            "base": unsigned(addr_width),
            "beat_step": unsigned(addr_width),
            "row_step": unsigned(addr_width),
            "tile_step": unsigned(addr_width),
            "m": unsigned(COUNT_WIDTH),
            "n": unsigned(COUNT_WIDTH),
            "beat": unsigned(COUNT_WIDTH),
            "tile": unsigned(COUNT_WIDTH),
        }
    )


def place_layout(addr_width: int) -> data.StructLayout:
    """Return the layout of an output beat of :class:`Walker`: the address of some columns of a row.

    A Walker passes over a matrix tile by tile (a tile is a group of adjacent columns), and over a
    tile row by row. A beat is some adjacent columns of a row of the tile. ``addr`` is the address
    of the beat's first column, in bytes of the scratchpad or words of a parameter memory. ``count``
    is the beat's number of columns. ``row_last`` is 1 for the last beat of a row of a tile,
    ``tile_last`` for the last beat of a tile, and ``last`` for the last beat of the matrix.
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


def start_walk(m: Module, walker: "Walker", start: Value, *, behind: bool) -> Value:
    """Let ``start`` begin walks of ``walker``; return a bit that is 1 while a walk waits to begin.

    A walk is the sequence of addresses that ``walker`` (:class:`Walker`) generates for one matrix.
    A cycle with ``start`` at 1 requests a walk. If no other walk is in progress, the requested walk
    begins in the same cycle, or in the next cycle if the walker's ``stages`` is 1.

    - If ``behind`` is false, ``start`` must not be 1 during a walk. The result is always 0.
    - If ``behind`` is true, ``start`` may be 1 during a walk. The requested walk then begins in the
      cycle in which the last address of the current walk is accepted, without a gap. The result is
      1 from the cycle of ``start`` to the cycle in which the requested walk begins. In these
      cycles, the walker's input ``walk`` must describe the requested walk, and no other walk may be
      requested.
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


def made_ahead(m: Module, walker: "Walker", *, forward: bool) -> wiring.PureInterface:
    """Return the output stream of ``walker``, for a unit that writes to the stream's addresses.

    ``walker`` is a :class:`Walker`, which generates an address for each beat (group of columns). If
    its ``stages`` is 1, the beats pass two register slices. The first can be placed near the
    walker, the second near the unit that writes. If ``stages`` is 0, the stream is the walker's
    output itself. If ``forward`` is true, the second slice stores one beat instead of two, and
    needs less logic (:class:`RegisterSlice`).
    """
    near = slices(m, walker.o, "near", stages=walker.stages)
    return slices(m, near, "ahead", stages=walker.stages, forward=forward)


class Walker(Component):
    """Generates addresses of an m x n matrix, one per beat (some adjacent columns of a row).

    ``walk`` describes the matrix and the steps between its addresses (:func:`walk_layout`). The n
    columns are divided into tiles of ``tile`` columns, and each row of a tile into beats of
    ``beat`` columns. One beat is generated per cycle: all rows of the first tile, then all rows of
    the next tile. For example, a matrix has 2 rows of 6 columns, ``tile`` is 4, and ``beat`` is 2.
    The beats begin at these columns: 0 and 2 of row 0, 0 and 2 of row 1, 4 of row 0, 4 of row 1.

    The output ``o`` has the fields of :func:`place_layout`: the address of a beat, its number of
    columns, and flags for the last beat of a row, tile and matrix.

    - The address of the first beat is ``base``.
    - Adjacent beats of a tile's row are ``beat_step`` apart.
    - Adjacent rows of a tile are ``row_step`` apart, from first beat to first beat.
    - Adjacent tiles are ``tile_step`` apart, from first beat to first beat.

    All addresses are modulo 2**addr_width.

    If ``wraps`` is true and ``period`` is not 0, the addresses of each row of the matrix repeat
    after ``period``. For example, ``base`` is 100, ``beat_step`` 16 and ``period`` 48. The beats of
    row 0 then have the addresses 100, 116, 132, 100, 116 and so on. A row continues in this way
    from tile to tile. ``beat_step`` and ``tile_step`` must then be less than ``period``.

    ``start`` is 1 for one cycle to load ``walk``; the first beat follows in the next cycle. The
    argument ``stages`` is 0 or 1. If it is 1, registers shorten the timing paths from ``walk``.
    Then ``walk`` must have the same value one cycle before ``start``. ``m``, ``n``, ``beat`` and
    ``tile`` must be at least 1.
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
