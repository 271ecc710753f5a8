"""Decodes rows of stored weight codes into lines of 8-bit weights, one line per cycle."""

import math
from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Mux, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import DIGITS, OPERAND_BITS, WeightFormat
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.tiles import times
from celosia.hdl.stream.fields import outputs, present
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.pipeline import delay

REST = OPERAND_BITS - 1
"""Most bits of a column's codes that are kept for later lines (bits)."""


def step_layout(formats: Sequence[WeightFormat], group: int) -> data.StructLayout:
    """Return the layout of the control signals of a :class:`WeightDecoder` for one cycle.

    - ``format``: number of the weight format, 0 for INT8.
    - ``have``: number of code bits that each column has left from earlier bytes.
    - ``fetch``, ``scale``: 1 to read a row of codes, or a row of scales.
    - ``grouped``: 1 if weights have scales.
    """
    members = {"format": range(len(formats) + 1), "fetch": 1, "have": range(OPERAND_BITS)}
    return data.StructLayout(members | present(scale=group > 0, grouped=group > 0))


class DecodeSteps(Component):
    """Generates the control signals of a :class:`WeightDecoder`, cycle by cycle.

    - ``format``, ``grouped``: number of the weight format (0 for INT8), and 1 if weights have
      scales.
    - ``advance``: 1 to continue with the next step, 0 to repeat this one.
    - ``tile``: 1, with ``advance``, in the last cycle of a weight tile.
    - ``restart``: 1, with ``tile``, at the end of a column of tiles.
    - ``step``: the control signals (:func:`step_layout`).
    - ``reads``: 1 if a row of bytes is read from memory in this cycle.
    - ``scales``: 1 if this row has scales.
    """

    def __init__(self, formats: Sequence[WeightFormat], group: int, rows: int):
        self.formats = tuple(formats)
        super().__init__(
            {
                "format": In(range(len(formats) + 1)),
                "grouped": In(1),
                "advance": In(1),
                "tile": In(1),
                "restart": In(1),
                "step": Out(step_layout(formats, group)),
                "reads": Out(1),
                "scales": Out(1),
            }
        )

    def circuit(self, m):
        step = self.step
        have = Signal(range(OPERAND_BITS))
        left = Signal.like(have)
        m.d.comb += [
            step.format.eq(self.format),
            step.have.eq(have),
            self.reads.eq((self.format == 0) | self.scales | step.fetch),
        ]
        with m.Switch(self.format):
            for index, form in enumerate(self.formats):
                with m.Case(index + 1):
                    used_bits, added_bits = (
                        (1, DIGITS) if form.digits else (form.width, OPERAND_BITS)
                    )
                    m.d.comb += step.fetch.eq(have < used_bits)
                    m.d.comb += left.eq(have - used_bits + Mux(step.fetch, added_bits, 0))
        with m.If(self.advance & ~self.scales):
            m.d.sync += have.eq(left)
        with m.If(self.restart):
            m.d.sync += have.eq(0)
        if self.group:
            tiles = self.group // self.rows
            place = Signal(range(tiles))  # of the tile in its group
            scaled = Signal()
            # If slots hold pairs, each tile has scales.
            ends = (place == tiles - 1) | (self.format == 0)
            m.d.comb += [
                self.scales.eq(self.grouped & (place == 0) & ~scaled),
                step.scale.eq(self.scales),
                step.grouped.eq(self.grouped),
            ]
            with m.If(self.advance):
                m.d.sync += scaled.eq(1)
            with m.If(self.tile):
                m.d.sync += [scaled.eq(0), place.eq(Mux(ends, 0, place + 1))]
                with m.If(self.grouped & ends):
                    m.d.sync += have.eq(0)
            with m.If(self.restart):
                m.d.sync += [scaled.eq(0), place.eq(0)]


class WeightDecoder(Component):
    """Converts rows of bytes from memory to lines of 8-bit weights, one line per cycle.

    - ``step``: control signals of the cycle (:func:`step_layout`);
    - ``bytes``: a row of bytes, in which byte j belongs to weight j of one or more lines;
    - ``o``: the line of weights, one cycle later;
    - ``scales``: each column's scale for INT8 weights, together with ``o``.

    A line has INT8 weights from ``bytes``, or weights from codes. The codes are in ``bytes``, or
    left over from earlier bytes. In a cycle that reads scales, the decoder stores them and outputs
    no line. Weights from codes are multiplied by their scale (equation (12) of docs/formats.md).
    """

    def __init__(self, config: MatrixConfig):
        elements = config.line_elements
        scale = OPERAND_BITS * (config.slot_scales > 0)
        super().__init__(
            {
                "step": In(Flow(step_layout(config.formats, config.weight_group))),
                "bytes": In(data.ArrayLayout(unsigned(8), elements)),
                "o": Out(data.ArrayLayout(signed(8), elements)),
                **outputs(scales=data.ArrayLayout(scale, config.array.cols)),
            }
        )

    def circuit(self, m):
        step = self.step.payload
        late = data.View(step.shape(), delay(m, step.as_value(), 1))
        for index, (element, out) in enumerate(zip(self.bytes, self.o, strict=True)):
            plain = Signal(signed(8), name=f"plain_{index}")
            if index >= self.config.array.cols:
                m.d.sync += plain.eq(element)
                m.d.comb += out.eq(plain)
                continue
            decoded = self._value(m, index, element)
            m.d.sync += plain.eq(Mux(step.format == 0, element.as_signed(), decoded))
            m.d.comb += out.eq(plain)
            if self.config.weight_group:
                self._scale(m, index, element, plain, late, out)

    def _value(self, m, index, element):
        """Return the operand of a column's next code, before its scale is applied."""
        step, formats = self.step.payload, self.config.formats
        kept = Signal(OPERAND_BITS, name=f"kept_{index}")  # the last byte, or the rest after digits
        value = Signal(signed(OPERAND_BITS), name=f"value_{index}")
        following, changes = element, step.fetch
        # The next byte follows the bits kept from the last byte, if any.
        size = max((form.width for form in formats if not form.digits), default=0)
        window = Signal(size, name=f"window_{index}")
        bits = Cat(element, kept[:REST]) >> self._places(step.have)
        m.d.comb += window.eq(bits[OPERAND_BITS - size : OPERAND_BITS])
        with m.Switch(step.format):
            for place, form in enumerate(formats):
                with m.Case(place + 1):
                    if form.digits:
                        tripled = Signal(OPERAND_BITS + 2, name=f"tripled_{index}")
                        m.d.comb += tripled.eq(times(Mux(step.fetch, element, kept), 3))
                        m.d.comb += value.eq(tripled[8:] - 1)
                        digits = step.format == place + 1
                        following = Mux(digits, tripled[:OPERAND_BITS], element)
                        changes = step.fetch | digits
                        continue
                    code = window[-form.width :]
                    m.d.comb += value.eq(_operand(code, form))
        with m.If(self.step.valid & changes):
            m.d.sync += kept.eq(following)
        return value

    def _places(self, have):
        """Return the number of kept bits; its lowest bits are 0 if all widths divide a byte."""
        widths = [form.width for form in self.config.formats if not form.digits]
        zeros = math.gcd(OPERAND_BITS, *widths).bit_length() - 1
        return Cat(Const(0, zeros), have[zeros:])

    def _scale(self, m, index, element, plain, late, out):
        """Store a group's scale, and multiply by it."""
        step = self.step.payload
        scale = Signal(8, name=f"scale_{index}")
        with m.If(self.step.valid & step.scale):
            m.d.sync += scale.eq(element)
        if self.config.slot_scales:
            kept = late.grouped & (late.format == 0)
            m.d.comb += self.scales[index].eq(Mux(kept, scale, 0))
        product = Signal(signed(2 * OPERAND_BITS + 1), name=f"product_{index}")
        width = max(_value_width(form) for form in self.config.formats)
        m.d.comb += product.eq(plain[:width].as_signed() * scale)
        with m.If(late.grouped), m.Switch(late.format):
            for place, form in enumerate(self.config.formats):
                with m.Case(place + 1):
                    half = 1 << form.fraction >> 1
                    m.d.comb += out.eq((product + half) >> form.fraction)


def _value_width(form: WeightFormat) -> int:
    """Return the width of a format's operands before their scale (bits)."""
    return max(max(form.values), -min(form.values) - 1).bit_length() + 1


def _operand(code, form: WeightFormat):
    """Return the operand of a code."""
    half = len(form.values) // 2
    if form.values == (*range(half), *range(-half, 0)):
        return code.as_signed()
    return Array([Const(value, signed(OPERAND_BITS)) for value in form.values])[code]
