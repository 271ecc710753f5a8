"""Converts lines of bytes from the scratchpad to lines of weights for the array."""

from amaranth.hdl import Cat, Mux, Shape, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import PAIRED_BITS
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import (
    has_column_copies,
    slots_of,
    strobes,
    subtract_zero_point,
    weight_layout,
)
from celosia.hdl.matrix.blocks import BlockEncoder
from celosia.hdl.matrix.decoder import WeightDecoder, step_layout
from celosia.hdl.matrix.wide import add_carries, byte_select_fields, bytes_of
from celosia.hdl.stream.fields import carry, present
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.pipeline import KEPT, delay, spread


class WeightWriter(Component):
    """Converts lines of bytes from the scratchpad to lines of weights minus their zero point.

    - ``i``: describes a line (row or column) of a ``k`` x ``n`` tile in the cycle of its request.
    - ``data``: the line's bytes, ``weight_latency`` cycles later.
    - ``o``: the weights, one cycle after ``data``, or two with weight formats. Elements past the
      tile are 0.

    If the field ``pair`` of ``i`` is 1, two lines become one: each byte of ``o`` has four bits of
    both. The latency counts from the last of these cycles of ``i``:

    - If ``block`` is 0: two cycles, with ``early`` at 1, 0.
    - If ``block`` is 1: three cycles, with ``early`` at 1, 1, 0 and ``second`` at 0, 1, 0. The
      third cycle requests no line.
    """

    def __init__(self, config: MatrixConfig):
        elements, pairs = max(config.array.rows, config.array.cols), config.packed_cache is not None
        points = config.array.zero_points
        note = {
            "slot": range(config.array.weight_depth),
            "index": range(elements),
            "k": range(config.array.rows + 1),
            "n": range(config.array.cols + 1),
            **present(
                zero=Shape(config.array.operand_width * points, signed=points),
                column=config.array.b_transpose,
                early=pairs,
                pair=pairs,
                lower=config.low_rows > 0,
                block=config.block_exponents,
                second=config.block_exponents,
            ),
        }
        if config.formats:
            note["step"] = step_layout(config.formats, config.weight_group)
        note |= byte_select_fields(config)
        super().__init__(
            {
                "i": In(Flow(data.StructLayout(note))),
                "data": In(data.ArrayLayout(8, config.access.line_bytes)),
                "o": Out(Flow(weight_layout(config))),
            }
        )

    def circuit(self, m):
        config, weights = self.config, self.o.payload
        first = data.View(self.i.payload.shape(), delay(m, self.i.payload, 1))
        note = data.View(first.shape(), delay(m, first.as_value(), config.weight_latency - 1))
        count = delay(m, self._count(first), config.weight_latency - 1)
        valid = delay(m, self.i.valid, config.weight_latency, reset=True)
        elements, more = self.data, []
        if config.array.wide:
            elements, more = bytes_of(self.data, len(weights.data), note.wide, note.low)
        if config.formats:
            m.submodules.decoder = decoder = WeightDecoder(config)
            m.d.comb += [
                decoder.step.valid.eq(valid),
                decoder.step.payload.eq(note.step),
                *(to.eq(byte) for to, byte in zip(decoder.bytes, elements, strict=False)),
            ]
            elements = decoder.o
            written = valid & ~note.step.scale if config.weight_group else valid
            valid = delay(m, written, 1, reset=True)
            note = data.View(note.shape(), delay(m, note.as_value(), 1))
            count = delay(m, count, 1)
            more = [delay(m, one, 1) for one in more]
        if config.array.wide:
            elements = add_carries(elements, more)
        lower = []
        if config.packed_cache:
            elements, lower = self._pairs(m, valid, note, count, elements)
            valid = valid & ~note.early
        m.d.sync += self.o.valid.eq(valid)
        spread(m, note.slot, slots_of(weights))
        if has_column_copies(config):
            masks = strobes(config, valid, note)
            if not (config.formats or config.packed_cache):
                # Known one cycle ahead, so that only wires are between here and the columns.
                ahead = config.weight_latency - 1
                line = data.View(self.i.payload.shape(), delay(m, self.i.payload, ahead))
                begins = delay(m, self.i.valid, ahead, reset=True)
                masks = [delay(m, mask, 1, reset=True) for mask in strobes(config, begins, line)]
            for to, strobe in zip(weights.strobe, masks, strict=True):
                near = Signal(config.array.rows, attrs=dict(KEPT))
                m.d.sync += near.eq(strobe)
                m.d.comb += to.eq(near)
        m.d.sync += weights.index.eq(note.index)
        if config.slot_scales:
            for col, (to, scale) in enumerate(zip(weights.scale, decoder.scales, strict=True)):
                part = scale.word_select(note.index, config.slot_scales)
                m.d.sync += to.eq(Mux(count > col, part, 0))
        zero = note.zero if config.array.zero_points else 0
        for line in self._copies(m):
            m.d.sync += carry(line, note, "column")
            subtract_zero_point(m, config, line.data, elements, count, zero)
            for index, bits in enumerate(lower):
                with m.If(note.lower):
                    m.d.sync += line.data[config.array.rows - 1 - index].eq(bits)

    def _count(self, note):
        """Return the number of valid elements of a line; a column past the last one has none."""
        if not self.config.array.b_transpose:
            return note.n
        return Mux(note.column, Mux(note.index < note.n, note.k, 0), note.n)

    def _copies(self, m):
        """Return the registers that drive the line's data for groups of adjacent columns."""
        weights = self.o.payload
        if "far" not in weights.shape().members:
            return [weights]
        copies = [
            Signal.like(one, name=f"far_{place}", reset_less=True, attrs=dict(KEPT))
            for place, one in enumerate(weights.far)
        ]
        m.d.comb += [far.eq(copy) for far, copy in zip(weights.far, copies, strict=True)]
        return [weights, *copies]

    def _pairs(self, m, valid, note, count, elements):
        """Return the elements, or those of pairs, and the lower bits of the first ones of pairs."""
        config, made = self.config, []
        held = Signal(data.ArrayLayout(8, max(config.array.rows, config.array.cols)))
        first = note.early & ~note.second if config.block_exponents else note.early
        with m.If(valid & first):
            m.d.sync += [to.eq(element) for to, element in zip(held, elements, strict=False)]
        for kept, element in zip(held, elements, strict=False):
            both = Cat(kept[PAIRED_BITS:], element[PAIRED_BITS:])
            made.append(Mux(note.pair, both, element))
        if config.block_exponents:
            m.submodules.encoder = encoder = BlockEncoder(
                rows=config.array.rows, cols=config.array.cols
            )
            m.d.comb += [
                encoder.first.eq(valid & first),
                encoder.second.eq(valid & note.second),
                encoder.count.eq(count),
            ]
            for index, out in enumerate(encoder.o):
                m.d.comb += [
                    encoder.elements[index].eq(elements[index]),
                    encoder.held[index].eq(held[index]),
                ]
                made[index] = Mux(note.block, out, made[index])
            m.d.sync += self.o.payload.exponent.eq(Mux(note.block, encoder.exponent, 0))
        # Minus half of their range they are signed.
        half = 1 << PAIRED_BITS - 1
        lower = [
            Cat(held[row][:PAIRED_BITS] ^ half, elements[row][:PAIRED_BITS] ^ half)
            for row in range(config.low_rows)
        ]
        return made, lower
