"""Argmax: the largest element of a row, and the column of this element."""

from amaranth.hdl import Mux, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from celosia.arch.errors import InputError
from celosia.arch.isa import COLUMN_WIDTH
from celosia.hdl.component import Component
from celosia.hdl.stream.pipeline import delay

LOWEST = -(1 << 15)
"""The smallest value of a 16-bit element."""


def largest_layout() -> data.StructLayout:
    """Return the layout of an argmax result: the value and the column of the largest element."""
    return data.StructLayout({"value": signed(16), "column": unsigned(COLUMN_WIDTH)})


class ArgmaxUnit(Component):
    """Finds the largest element of a row, and the lowest column that has it.

    If ``valid`` is 1, ``i`` has ``count`` elements, from column ``column`` on. ``fresh`` is 1 in a
    row's first beat. ``o`` includes all beats of at least ``latency`` cycles ago. Raises
    :class:`InputError` if ``lanes`` is below 1.
    """

    def __init__(self, lanes: int):
        if lanes < 1:
            raise InputError(f"Argmax lanes must be a positive integer, not {lanes!r}")
        super().__init__(
            {
                "valid": In(1),
                "fresh": In(1),
                "count": In(range(lanes + 1)),
                "column": In(COLUMN_WIDTH),
                "i": In(data.ArrayLayout(signed(16), lanes)),
                "o": Out(largest_layout()),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a beat on ``i`` to the result on ``o`` that includes the beat."""
        return 3 + ceil_log2(self.lanes)

    def circuit(self, m):
        candidates = []
        for lane in range(self.lanes):
            value = Signal(signed(16), name=f"value_{lane}", reset_less=True)
            m.d.sync += value.eq(Mux(self.count > lane, self.i[lane], LOWEST))
            candidates.append((value, lane))
        stages = ceil_log2(self.lanes)
        for stage in range(stages):
            candidates = self._halve(m, stage, candidates)

        # The largest element of the beat with its column; then the largest of all beats.
        ((value, lane),) = candidates
        found = Signal(largest_layout(), reset_less=True)
        m.d.sync += [
            found.value.eq(value),
            found.column.eq(delay(m, self.column, 1 + stages) + lane),
        ]
        valid = delay(m, self.valid, 2 + stages, reset=True)
        fresh = delay(m, self.fresh, 2 + stages)
        with m.If(valid & (fresh | (found.value > self.o.value))):
            m.d.sync += self.o.eq(found)

    def _halve(self, m, stage, candidates):
        """Return the larger of each two neighbours, one cycle later."""
        kept = []
        for place, pair in enumerate(zip(candidates[::2], candidates[1::2], strict=False)):
            (left, left_lane), (right, right_lane) = pair
            value = Signal(signed(16), name=f"value_{stage}_{place}", reset_less=True)
            lane = Signal(range(self.lanes), name=f"lane_{stage}_{place}", reset_less=True)
            larger = right > left
            m.d.sync += [
                value.eq(Mux(larger, right, left)),
                lane.eq(Mux(larger, right_lane, left_lane)),
            ]
            kept.append((value, lane))
        if len(candidates) % 2:
            value, lane = candidates[-1]
            kept.append((delay(m, value, 1), delay(m, lane, 1)))
        return kept
