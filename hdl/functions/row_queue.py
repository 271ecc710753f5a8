"""A queue that delays the beats of a row until a value computed from the whole row is known."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from celosia.hdl.component import Component
from celosia.hdl.memory.protected import error_port, errors_of, gather, protected_fifo
from celosia.hdl.stream.pipeline import delay

ROW_LATENCY = 1
"""Cycles from the value of a row to the row's first beat on ``o``."""
FIFO_LATENCY = 2
"""Additional cycles if the value of a row passes through the queue."""


class RowQueue(Component):
    """Stores the beats of a row until a value of the row, such as its sum, arrives.

    A beat enters on ``beat``, in a cycle with ``beat_en`` at 1. The value of the beat's row enters
    later on ``row``, in a cycle with ``row_en`` at 1. ``o`` outputs every beat with the value of
    its row. ``beat`` has a field ``last``, which is 1 in the last beat of a row.

    The queue cannot refuse a beat or a value. So the sender must reserve space for each beat before
    it begins to compute the beat. To reserve space, the sender sets ``commit`` to 1 in a cycle with
    the output ``room`` at 1. If the beat is the last of a row, ``commit_last`` must also be 1; this
    reserves space for the value of the row. The beat enters in the cycle of ``commit`` or later.
    The space becomes free when the beat leaves on ``o``.

    A row has at most ``max_beats`` beats. ``waiting`` is the largest number of cycles from the
    ``commit`` of a row's last beat to the arrival of the row's value. If every value arrives within
    ``waiting`` cycles, ``room`` becomes 0 only if ``o`` stalls, and throughput is one beat per
    cycle for rows of any length. The first beat of a row leaves ``ROW_LATENCY`` cycles after the
    row's value arrived, or later if beats of earlier rows are still in the queue. ``o`` comes from
    registers.

    If ``parity`` is true, each beat and each value in the queue has a parity bit. Bit 1 of the
    output ``errors`` reports that a word with a wrong parity bit was read; bit 0 is always 0.
    """

    def __init__(
        self,
        beat: data.StructLayout,
        row: data.StructLayout,
        *,
        max_beats: int,
        waiting: int,
        parity: bool = False,
    ):
        level = "detect" if parity else "none"
        # Room is known two cycles after a beat was committed, and leaves one place unused.
        in_flight = waiting + ROW_LATENCY + FIFO_LATENCY + 4
        self.beats = protected_fifo(beat.size, max_beats + in_flight, level)
        self.rows = protected_fifo(row.size, in_flight, level)
        super().__init__(
            {
                "commit": In(1),
                "commit_last": In(1),
                "room": Out(1, init=1),
                "beat_en": In(1),
                "beat": In(beat),
                "row_en": In(1),
                "row": In(row),
                "o": Out(stream.Signature(data.StructLayout({"beat": beat, "row": row}))),
                **error_port(level),
            }
        )

    def circuit(self, m):
        m.submodules.beats = beats = self.beats
        m.submodules.rows = rows = self.rows
        gather(m, self, errors_of([beats, rows]))
        beat = Signal.like(self.o.payload.beat, reset_less=True)
        row = Signal.like(self.o.payload.row, reset_less=True)
        beat_held, row_held = Signal(), Signal()
        taken, taken_last = Signal(), Signal()
        # A row's value passes an empty queue.
        passes = Signal()
        m.d.comb += [
            passes.eq(self.row_en & rows.r_en & (rows.level == 0)),
            beats.w_en.eq(self.beat_en),
            beats.w_data.eq(self.beat),
            rows.w_en.eq(self.row_en & ~passes),
            rows.w_data.eq(self.row),
            self.o.valid.eq(beat_held & row_held),
            self.o.payload.beat.eq(beat),
            self.o.payload.row.eq(row),
            taken.eq(self.o.valid & self.o.ready),
            taken_last.eq(taken & beat.last),
            beats.r_en.eq(~beat_held | taken),
            rows.r_en.eq(~row_held | taken_last),
        ]
        with m.If(beats.r_en):
            m.d.sync += [beat_held.eq(beats.r_rdy), beat.eq(beats.r_data)]
        with m.If(rows.r_en):
            m.d.sync += [
                row_held.eq(rows.r_rdy | passes),
                row.eq(Mux(rows.r_rdy, rows.r_data, self.row)),
            ]

        beat_count = Signal(range(beats.depth + 1))
        row_count = Signal(range(rows.depth + 1))
        m.d.sync += [
            beat_count.eq(beat_count + self.commit - delay(m, taken, 1, reset=True)),
            row_count.eq(
                row_count + (self.commit & self.commit_last) - delay(m, taken_last, 1, reset=True)
            ),
        ]
        m.d.sync += self.room.eq((beat_count < beats.depth - 1) & (row_count < rows.depth - 1))
