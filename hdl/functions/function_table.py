"""Activation functions from tables of 256 bytes: function values, or polynomial coefficients."""

from amaranth.hdl import Cat, Mux, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from celosia.arch.functions import TABLE_ENTRIES
from celosia.arch.latency import POLYNOMIAL_LATENCY
from celosia.arch.polynomial import (
    FUNCTION_SEGMENTS,
    FUNCTION_T_WIDTH,
    FUNCTION_WIDTH,
    GUARD_WIDTH,
    SLOPE_BITS,
)
from celosia.hdl.arithmetic.polynomial import horner
from celosia.hdl.component import Component
from celosia.hdl.functions.table import TableWritePort
from celosia.hdl.memory.protected import error_port, errors_of, gather, protected_ram
from celosia.hdl.stream.pipeline import delay

ROW_BYTES = TABLE_ENTRIES // FUNCTION_SEGMENTS
"""Size of the coefficients of one polynomial segment (bytes)."""
_ROW_LAYOUT = data.StructLayout(
    {
        "c0": signed(16),
        "c1": signed(SLOPE_BITS),
        "c1_spare": 24 - SLOPE_BITS,
        "c2": signed(SLOPE_BITS),
        "c2_spare": 24 - SLOPE_BITS,
    }
)


class FunctionLane(Component):
    """One lane of :class:`FunctionTable`, with a copy of all tables and two multipliers.

    The ports are those of :class:`FunctionTable` for a single lane.
    """

    def __init__(self, slots: int, operand_width: int, level: str):
        super().__init__(
            {
                "en": In(1),
                "polynomial": In(1),
                "index": In(signed(FUNCTION_WIDTH)),
                "slot": In(max(1, ceil_log2(slots))),
                "value": Out(signed(8)),
                "result": Out(signed(8)),
                "write": In(TableWritePort(slots)),
                **error_port(level),
            }
        )

    def circuit(self, m):
        """Instantiate a memory, a multiplexer of function values, and a polynomial evaluator.

        A word of the memory has 8 bytes: eight function values, or the coefficients of one segment
        of a piecewise polynomial. The evaluator uses Horner's rule.
        """
        width, depth = 8 * ROW_BYTES, self.slots * FUNCTION_SEGMENTS
        m.submodules.ram = ram = protected_ram(width, depth, self.level, part=8, parts=True)
        x = self.index.as_unsigned()
        byte, segment = x[3:8], x[FUNCTION_T_WIDTH:]
        place = Mux(self.polynomial, segment, byte)
        m.d.comb += [
            # A read of the same 8 bytes in this cycle is undefined.
            ram.write_en.eq(self.write.en << self.write.index[:3]),
            ram.write_addr.eq(Cat(self.write.index[3:], self.write.slot)),
            ram.write_data.eq(self.write.value.as_unsigned().replicate(ROW_BYTES)),
            ram.read_en.eq(self.en),
            # Offset binary: the lowest operand is first.
            ram.read_addr.eq(Cat(place[:-1], ~place[-1], self.slot)),
        ]
        low = delay(m, x[:3], 1, en=self.en)
        # Block RAM outputs arrive late in the cycle.
        with m.If(self.en):
            m.d.sync += self.value.eq(ram.read_data.word_select(low, 8))
        row = data.View(_ROW_LAYOUT, ram.read_data)
        total = horner(
            m,
            (row.c0, row.c1, row.c2),
            delay(m, x[:FUNCTION_T_WIDTH], 1, en=self.en),
            slope_width=SLOPE_BITS + 1,
            sum_width=SLOPE_BITS + 2,
            en=self.en,
        )
        y, high = total >> GUARD_WIDTH, (1 << (self.operand_width - 1)) - 1
        m.d.comb += self.result.eq(Mux(y > high, high, Mux(y < ~high, ~high, y)))
        gather(m, self, errors_of([ram]))


class FunctionTable(Component):
    """Evaluates activation functions from ``slots`` tables of 256 bytes, in ``lanes`` lanes.

    If ``polynomial`` is 0, ``value`` is byte ``index`` + 128 of table ``slot``, ``TABLE_LATENCY``
    cycles later. If ``polynomial`` is 1, ``result`` is the value at ``index`` of the piecewise
    polynomial in table ``slot``, ``latency`` cycles later: equation (17) of docs/numerics.md. Only
    cycles with ``en`` at 1 count. ``write`` writes an entry of a table.
    """

    latency = POLYNOMIAL_LATENCY

    def __init__(self, lanes: int, slots: int, operand_width: int = 8, level: str = "none"):
        values = data.ArrayLayout(signed(8), lanes)
        super().__init__(
            {
                "en": In(1),
                "polynomial": In(1),
                "index": In(data.ArrayLayout(signed(FUNCTION_WIDTH), lanes)),
                "slot": In(max(1, ceil_log2(slots))),
                "value": Out(values),
                "result": Out(values),
                "write": In(TableWritePort(slots)),
                **error_port(level),
            }
        )

    def circuit(self, m):
        """Instantiate a :class:`FunctionLane` for each lane, all with the same table contents."""
        lanes = []
        for number in range(self.lanes):
            lane = FunctionLane(self.slots, self.operand_width, self.level)
            m.submodules[f"lane_{number}"] = lane
            lanes.append(lane)
            wiring.connect(m, wiring.flipped(self.write), lane.write)
            m.d.comb += [
                lane.en.eq(self.en),
                lane.polynomial.eq(self.polynomial),
                lane.index.eq(self.index[number]),
                lane.slot.eq(self.slot),
                self.value[number].eq(lane.value),
                self.result[number].eq(lane.result),
            ]
        gather(m, self, errors_of(lanes))
