"""Front ends of the vector engine: they compute the values that the back end requantizes."""

from amaranth.hdl import Cat, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.access import Access
from celosia.arch.isa import COUNT_WIDTH
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.component import Component
from celosia.hdl.functions.addnorm import AddNormUnit
from celosia.hdl.functions.row_factors import RowFactors, factor_layout, numbered_layout
from celosia.hdl.functions.softmax import SoftmaxUnit
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.slice import slices_before
from celosia.hdl.vector.beats import beat_layout, elements, present, staged, value_layout

OFFSET_WIDTH = COUNT_WIDTH + 3
"""Width of a signed distance between two columns (bits)."""


class MapFront(Component):
    """Processes the input of MAP: subtracts the zero point ``zero`` from the elements of ``i``.

    Elements have 8 bits, or 16 bits if ``wide`` is 1. The circuit is combinational.
    """

    def __init__(self, access: Access, lanes: int, beat_lanes: int):
        super().__init__(
            {
                "wide": In(1),
                "zero": In(signed(8)),
                "i": In(stream.Signature(beat_layout(access))),
                "o": Out(stream.Signature(value_layout(beat_lanes))),
            }
        )

    def circuit(self, m):
        lanes = self.lanes
        narrow, wide = elements(self.i.p, lanes, 1), elements(self.i.p, lanes, 2)
        for lane in range(lanes):
            element = Mux(self.wide, wide[lane], narrow[lane])
            m.d.comb += self.o.p.value[lane].eq(element - self.zero)
        m.d.comb += [
            self.o.p.keep.eq(-1),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
        ]


class ColumnOffset(Component):
    """Computes the distance ``offset`` from a beat's first column to one given column of its row.

    The given column is ``first`` in row 0; from row to row, ``step`` is added. ``start`` selects
    the first beat of row 0. ``advance`` selects the next beat of ``lanes`` columns, in the next row
    if ``row_last`` is 1.
    """

    start: In(1)
    first: In(signed(OFFSET_WIDTH))
    step: In(signed(OFFSET_WIDTH))
    advance: In(1)
    row_last: In(1)
    offset: Out(signed(OFFSET_WIDTH))

    def __init__(self, lanes: int):
        super().__init__()

    def circuit(self, m):
        row = Signal(signed(OFFSET_WIDTH))
        following = Signal(signed(OFFSET_WIDTH))
        m.d.comb += following.eq(row + self.step)
        with m.If(self.start):
            m.d.sync += [row.eq(self.first), self.offset.eq(self.first)]
        with m.Elif(self.advance):
            with m.If(self.row_last):
                m.d.sync += [row.eq(following), self.offset.eq(following)]
            with m.Else():
                m.d.sync += self.offset.eq(self.offset - self.lanes)


class SoftmaxFront(Component):
    """Processes the input of SOFTMAX: softmax of rows of 16-bit scores with masked columns.

    - ``i``, ``o``: scores and results, row by row.
    - ``start_column``, ``limit``: columns from ``start_column`` to ``limit - 1`` take part in row
      0. ``start_step`` and ``limit_step`` are added from row to row.
    - ``diagonal_en``: 1 to add ``diagonal_value`` to result ``diagonal + r`` of row r.
    - ``factor``: with ``row_factors``, reciprocal of row r's sum, with index ``number + r``.
    - ``start``: 1 before a command's first beat.
    - ``owes``: 1 from ``start`` until all earlier scores are read. ``start_column``, ``limit`` and
      ``number`` must not change while ``owes`` is 1.

    The next command must start after the last result, unless its other inputs are equal and
    ``diagonal_en`` is 0.
    """

    diagonal: Signal
    """The column of row 0 to which ``diagonal_value`` is added."""

    def __init__(self, config: VectorConfig):
        factor = {}
        if config.row_factors:
            factor["number"] = In(range(config.row_factors))
            factor["factor"] = Out(Flow(numbered_layout(config.row_factors)))
        super().__init__(
            {
                **factor,
                "start": In(1),
                "start_column": In(signed(OFFSET_WIDTH)),
                "start_step": In(signed(OFFSET_WIDTH)),
                "limit": In(signed(OFFSET_WIDTH)),
                "limit_step": In(signed(OFFSET_WIDTH)),
                "diagonal_en": In(1),
                "diagonal": In(signed(OFFSET_WIDTH)),
                "diagonal_value": In(signed(28)),
                "i": In(stream.Signature(beat_layout(config.access))),
                "owes": Out(1),
                "o": Out(stream.Signature(value_layout(config.beat_lanes))),
                **error_port(config.protected("queues")),
            }
        )

    def circuit(self, m):
        lanes = self.config.beat_lanes
        parity = self.config.protected("queues") != "none"
        beats = staged(m, self.config, wiring.flipped(self.i), "beats")
        factors = self.config.row_factors
        unit = SoftmaxUnit(lanes, self.config.vector.longest_row, factors=factors, parity=parity)
        m.submodules.softmax = unit
        gather(m, self, errors_of([unit]))
        m.submodules.first = first = ColumnOffset(lanes)
        m.submodules.limit = limit = ColumnOffset(lanes)
        m.submodules.diagonal = diagonal = ColumnOffset(lanes)
        owed, begin, passing, ended = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            ended.eq(beats.valid & beats.ready & beats.p.last),
            begin.eq((self.start | owed) & (~passing | ended)),
            self.owes.eq(self.start | owed),
        ]
        m.d.sync += [
            owed.eq(self.owes & ~begin),
            passing.eq(begin | (passing & ~ended)),
        ]
        for tracker, column, step, flow, row_last in (
            (first, self.start_column, self.start_step, beats, beats.p.row_last),
            (limit, self.limit, self.limit_step, beats, beats.p.row_last),
            (diagonal, self.diagonal, 1, unit.o, unit.o.p.last),
        ):
            m.d.comb += [
                tracker.start.eq(begin),
                tracker.first.eq(column),
                tracker.step.eq(step),
                tracker.advance.eq(flow.valid & flow.ready),
                tracker.row_last.eq(row_last),
            ]
        if factors:
            self._number(m, unit, begin, beats)
        inside = Cat((first.offset <= lane) & (limit.offset > lane) for lane in range(lanes))
        m.d.comb += [
            Cat(unit.i.p.q).eq(Cat(elements(beats.p, lanes, 2))),
            unit.i.p.mask.eq(inside & present(beats.p, lanes)),
            unit.i.p.last.eq(beats.p.row_last),
            unit.i.valid.eq(beats.valid),
            beats.ready.eq(unit.i.ready),
        ]
        layout = data.StructLayout({"found": unit.o.p.shape(), "diagonal": lanes})
        probabilities = stream.Signature(layout).create()
        m.d.comb += [
            probabilities.p.found.eq(unit.o.p),
            probabilities.p.diagonal.eq(
                Cat(self.diagonal_en & (diagonal.offset == lane) for lane in range(lanes))
            ),
            probabilities.valid.eq(unit.o.valid),
            unit.o.ready.eq(probabilities.ready),
        ]
        probabilities = staged(m, self.config, probabilities, "stage")
        m.d.comb += [
            self.o.p.keep.eq(probabilities.p.found.mask),
            self.o.valid.eq(probabilities.valid),
            probabilities.ready.eq(self.o.ready),
        ]
        for lane in range(lanes):
            added = Mux(probabilities.p.diagonal[lane], self.diagonal_value, 0)
            m.d.comb += self.o.p.value[lane].eq(probabilities.p.found.p[lane] + added)

    def _number(self, m, unit, begin, beats):
        """Number the rows, and output their factors."""
        number = Signal.like(self.number)
        with m.If(begin):
            m.d.sync += number.eq(self.number)
        with m.Elif(beats.valid & beats.ready & beats.p.row_last):
            m.d.sync += number.eq(number + 1)
        m.d.comb += unit.i.p.number.eq(number)
        wiring.connect(m, unit.factor, wiring.flipped(self.factor))


class NormFront(Component):
    """Processes the input of NORM: normalizes rows of ``n`` 16-bit elements of ``i``.

    If ``add`` is 1, the elements of ``r`` are first added to those of ``i``. ``o_sum`` outputs the
    elements before normalization. With the option ``row_factors``, ``o`` has the same elements, and
    ``factor`` is the number by which a later command multiplies the row.
    """

    rms: Signal
    """1 for the RMS norm, 0 for the layer norm; without effect with ``row_factors``."""
    eps: Signal
    """Added to ``n**2`` times the variance, or the mean square with ``rms``."""
    o: stream.Interface
    """The normalized elements; with ``row_factors``, the elements before normalization."""

    def __init__(self, config: VectorConfig):
        lanes = config.vector.lanes
        # The factor by which a later command multiplies a row.
        factor = {"factor": Out(Flow(factor_layout()))} if config.row_factors else {}
        super().__init__(
            {
                **factor,
                "n": In(COUNT_WIDTH),
                "rms": In(1),
                "add": In(1),
                "eps": In(56),
                "i": In(stream.Signature(beat_layout(config.access))),
                "r": In(stream.Signature(beat_layout(config.access))),
                "o": Out(stream.Signature(value_layout(config.beat_lanes))),
                "o_sum": Out(stream.Signature(data.ArrayLayout(signed(16), lanes))),
                **error_port(config.protected("queues")),
            }
        )

    def circuit(self, m):
        lanes = self.config.vector.lanes
        parity = self.config.protected("queues") != "none"
        if self.config.row_factors:
            unit = RowFactors(lanes=lanes, max_row=self.config.vector.longest_row)
            wiring.connect(m, unit.factor, wiring.flipped(self.factor))
        else:
            unit = AddNormUnit(lanes=lanes, max_row=self.config.vector.longest_row, parity=parity)
            m.d.comb += unit.rms.eq(self.rms)
            gather(m, self, errors_of([unit]))
        m.submodules.addnorm = unit
        joined = slices_before(
            m, unit.i, "before", stages=self.config.stages, forward=not self.config.fused
        )
        values = staged(m, self.config, unit.o, "behind")
        both = Signal()
        m.d.comb += [
            both.eq(self.i.valid & (self.r.valid | ~self.add)),
            Cat(joined.p.x).eq(Cat(elements(self.i.p, lanes, 2))),
            Cat(joined.p.r).eq(Cat(elements(self.r.p, lanes, 2))),
            joined.p.mask.eq(present(self.i.p, lanes)),
            joined.p.last.eq(self.i.p.row_last),
            joined.valid.eq(both),
            self.i.ready.eq(both & joined.ready),
            self.r.ready.eq(both & joined.ready & self.add),
            unit.n.eq(self.n),
            unit.add.eq(self.add),
            unit.eps.eq(self.eps),
            Cat(self.o.p.value).eq(Cat(values.p.value)),
            self.o.p.keep.eq(values.p.mask),
            self.o.valid.eq(values.valid),
            values.ready.eq(self.o.ready),
            Cat(self.o_sum.p).eq(Cat(unit.o_sum.p.s)),
            self.o_sum.valid.eq(unit.o_sum.valid),
            unit.o_sum.ready.eq(self.o_sum.ready),
        ]
