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
    """Delays the beats of a row until a value of the whole row, such as its sum, arrives.

    ``commit`` reserves space for one beat, which must follow. ``room`` is 1 if ``commit`` may
    reserve space. A row has at most ``max_beats`` beats. ``o`` outputs each beat together with the
    value of its row. The first beat of a row leaves ``ROW_LATENCY`` cycles after this value has
    arrived, or later.
    """

    beat: data.View
    """The beat to append, in the cycle of its ``commit`` or later."""
    beat_en: Signal
    """1 to append ``beat`` to the queue."""
    commit_last: Signal
    """1 if the beat of ``commit`` is its row's last."""
    row: data.View
    """The value of the oldest row that lacks one."""
    row_en: Signal
    """1 to append ``row``, the value of a row, in the order of rows."""

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
        # A value comes ``waiting`` cycles or less after its row's last commit, so rows have no gap.
        # Room is known two cycles after a beat was committed, and leaves one place unused.
        in_flight = waiting + ROW_LATENCY + FIFO_LATENCY + 4
        self.beats = protected_fifo(beat.size, max_beats + in_flight, level)
        self.rows = protected_fifo(row.size, in_flight, level)
        super().__init__(
            {
                "commit": In(1),
                "commit_last": In(1),  # with commit: the beat is the last of its row
                "room": Out(1, init=1),
                "beat_en": In(1),  # the beat enters, in the cycle of its commit or later
                "beat": In(beat),
                "row_en": In(1),  # the value of the oldest row without value enters
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
