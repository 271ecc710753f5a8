"""The array for single vectors: an adder tree for each column of multipliers."""

import itertools

from amaranth.hdl import Cat, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import PAIRED_BITS, SCALE_BITS
from celosia.arch.latency import (
    REGISTER_DEPTH,
    array_latency,
    factor_width,
    product_latency,
    row_width,
    weights_latency,
)
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.arithmetic.multiplier import Multiplier, PackedMultiplier
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import (
    NEAR_COLUMNS,
    array_members,
    has_column_copies,
    side,
    slots_of,
    strobes,
    sum_width,
)
from celosia.hdl.matrix.blocks import exponent_widths, operand
from celosia.hdl.matrix.element import weight_registers
from celosia.hdl.matrix.pairs import multiply_weight, pair_members
from celosia.hdl.matrix.parts import PartAdder, part_layout, part_of, shifted_to_part
from celosia.hdl.matrix.wide import in_place
from celosia.hdl.memory.split_ram import SplitRam
from celosia.hdl.stream.fields import assign, carry, inputs, late_field, outputs
from celosia.hdl.stream.pipeline import delay, spread


class TreeColumn(Component):
    """A column of the adder tree array: one multiplier per row, and a tree of adders.

    - ``a``: activations.
    - ``slot``, ``part``, ``live``: number of the stored weights, their bits to use, and 0 for each
      zero activation, ``weights_latency`` cycles before ``a``.
    - ``o``: the sum, ``product_latency + ceil(log2(rows))`` cycles after ``a``.
    - ``strobe``: bit r writes ``weights`` of row r to ``write_slot``, which must differ from
      ``slot``.
    - ``lower``: 1, one cycle before ``o``, to multiply the first ``high_rows`` products by 16.
    - ``block``: 1, with ``a``, if weights are 4-bit mantissas.
    - ``exponents``: stored exponent bits, ``weights_latency`` cycles after ``slot``.
    - ``scale``: stored scale, with ``o``.
    - ``beside``, ``product``: :func:`pair_members`.
    """

    def __init__(self, config: MatrixConfig, side: str = "", exponent_width: int = 0):
        rows, width = config.array.rows, config.element_width
        self.weight_width = (
            width + config.array.operand_gating + config.slot_scales + exponent_width
        )
        self.row_width = row_width(config)
        self.part_width = factor_width(config)
        members = {
            "a": In(data.ArrayLayout(signed(self.row_width), rows)),
            "slot": In(range(config.array.weight_depth)),
            "strobe": In(rows),
            "write_slot": In(range(config.array.weight_depth)),
            "weights": In(data.ArrayLayout(unsigned(self.weight_width), rows)),
            "o": Out(signed(sum_width(config, rows))),
        }
        members |= inputs(live=config.array.operand_gating * rows)
        members |= outputs(scale=SCALE_BITS * (config.slot_scales > 0))
        members |= inputs(lower=config.low_rows > 0, block=config.block_exponents)
        members |= outputs(exponents=data.ArrayLayout(exponent_width, rows))
        members |= inputs(part=part_layout(config.array.pass_width, paired=config.paired))
        beside = data.ArrayLayout(unsigned(self.part_width + config.array.operand_gating), rows)
        products = data.ArrayLayout(signed(width + self.part_width), rows)
        super().__init__(members | pair_members(side, beside, products))

    def circuit(self, m):
        config = self.config
        late_live = Signal(config.array.rows)
        if config.array.operand_gating:
            m.d.comb += late_live.eq(delay(m, self.live, weights_latency(config)))
        held = self._memory(m) if config.array.weight_depth > REGISTER_DEPTH else self._registers(m)
        if self.exponent_width:
            m.d.comb += [
                out.eq(word[-self.exponent_width :])
                for out, word in zip(self.exponents, held, strict=True)
            ]
            held = [word[: -self.exponent_width] for word in held]
        if config.slot_scales:
            scale = Cat(word[config.element_width :] for word in held)[:SCALE_BITS]
            m.d.comb += self.scale.eq(
                delay(m, scale, array_latency(config) - weights_latency(config))
            )
            held = [word[: config.element_width] for word in held]
        if config.parted:
            part, paired = delay(m, self.part, weights_latency(config)), config.paired
            held = [part_of(word, part, config.array.pass_width, paired=paired) for word in held]
        if config.block_exponents:
            held = [Mux(self.block, operand(word), word) for word in held]
        if self.side == "left":
            m.d.comb += [out.eq(weight) for out, weight in zip(self.beside, held, strict=True)]
            products = list(self.product)
        else:
            products = [
                self._multiply(m, row, weight, late_live[row]) for row, weight in enumerate(held)
            ]
        terms = [(product, 1) for product in products]
        if config.low_rows:
            m.d.comb += self.o.eq(self._halves(m, terms))
            return
        while len(terms) > 1:
            terms = self._level(m, terms)
        m.d.comb += self.o.eq(terms[0][0])

    def _halves(self, m, terms):
        """Return the sum of the first rows, 16-fold with ``lower``, plus that of the others."""
        high, low = terms[: self.config.high_rows], terms[self.config.high_rows :]
        for _ in range((self.config.array.rows - 1).bit_length() - 1):
            high, low = self._level(m, high), self._level(m, low)
        total = Signal.like(self.o, reset_less=True)
        first = high[0][0]
        m.d.sync += total.eq(Mux(self.lower, first << PAIRED_BITS, first) + low[0][0])
        return total

    def _multiply(self, m, row, weight, live):
        """Return the product of a row; in a right column both products."""
        if self.config.array.pass_width == 1:
            m.submodules[f"adder_{row}"] = adder = PartAdder(self.config.element_width)
            m.d.comb += [adder.a.eq(self.a[row]), adder.b.eq(weight)]
            return adder.p + adder.carry
        width, right = self.part_width, self.side == "right"
        kind = PackedMultiplier if right else Multiplier
        multiplier = kind(self.row_width, b_width=width, gating=self.config.array.operand_gating)
        m.submodules[f"multiplier_{row}"] = multiplier
        if self.config.array.operand_gating:
            blank = Signal(name=f"blank_{row}")
            counts = weight[width] | self.beside[row][width] if right else weight[width]
            m.d.comb += [multiplier.en.eq(live & counts), multiplier.clear.eq(blank)]
            m.d.sync += blank.eq(~multiplier.en)
        pair = (self.beside[row], self.product[row]) if right else None
        product = multiply_weight(m, multiplier, self.a[row], weight, pair)
        if not right:
            product = delay(m, product, product_latency(self.config) - 2)
        # Products of mantissas have no more bits than those of INT8.
        return product[: self.config.element_width + width].as_signed()

    def _memory(self, m):
        """Return each row's weight of the slot ``weights_latency`` cycles before, from a memory."""
        config, width = self.config, self.weight_width
        m.submodules.weights = memory = SplitRam(
            width * config.array.rows,
            config.array.weight_depth,
            part=width,
            stages=config.stages,
        )
        m.d.comb += [
            memory.write_en.eq(self.strobe),
            memory.write_addr.eq(self.write_slot),
            memory.write_data.eq(self.weights.as_value()),
            memory.read_en.eq(self.live.any() if config.array.operand_gating else 1),
            memory.read_addr.eq(self.slot),
        ]
        return [memory.read_data.word_select(row, width) for row in range(config.array.rows)]

    def _registers(self, m):
        """Return each row's weight of the previous cycle's slot, from registers."""
        late_slot = Signal.like(self.slot)
        m.d.sync += late_slot.eq(self.slot)
        return [
            weight_registers(
                m,
                name=f"weight_{row}",
                depth=self.config.array.weight_depth,
                write_en=self.strobe[row],
                write_slot=self.write_slot,
                data=weight,
                slot=late_slot,
            )
            for row, weight in enumerate(self.weights)
        ]

    def _level(self, m, terms):
        """Add terms in pairs; each term has the number of products in it."""
        sums = []
        for place in range(0, len(terms), 2):
            pair = terms[place : place + 2]
            products = sum(count for _, count in pair)
            total = Signal(signed(sum_width(self.config, products)), reset_less=True)
            m.d.sync += total.eq(sum(term for term, _ in pair))
            sums.append((total, products))
        return sums


class TreeArray(Component):
    """An array of ``rows`` x ``cols`` multipliers with an adder tree for each column.

    ``i`` receives vectors of activations, one per cycle. ``o`` is one sum per column, ``latency``
    cycles later, modulo 2**acc_width. ``latency`` is
    ``weights_latency + product_latency + ceil(log2(rows))``. ``i_weights`` writes one line (row or
    column) of a weight tile per cycle into a slot, in any order. A vector uses lines written in
    earlier cycles. It must not use a slot in a cycle in which a line of the slot is written.
    """

    def __init__(self, config: MatrixConfig):
        super().__init__(array_members(config))

    @property
    def latency(self) -> int:
        """Number of cycles from a vector of activations on ``i`` to its sums on ``o``."""
        return array_latency(self.config, "tree")

    def circuit(self, m):
        config, i = self.config, self.i.payload
        a = Signal.like(i.a, reset_less=True)
        live = Signal(config.array.rows)
        if config.array.operand_gating:
            nonzero = Cat(element != 0 for element in i.a)
            zero = Signal(config.array.rows)
            m.d.comb += live.eq(Mux(self.i.valid, nonzero, 0))
            m.d.sync += [zero.eq(Mux(self.i.valid, ~nonzero, 0)), self.zeros.eq(sum(zero))]
            for row, element in enumerate(a):
                with m.If(live[row]):
                    m.d.sync += element.eq(i.a[row])
        else:
            m.d.sync += a.eq(i.a)
        late = [a]
        if has_column_copies(config):
            # One copy for the columns of each side of a device.
            late = [
                Signal.like(a, name=f"late_{part}") for part in range(min(config.array.cols, 2))
            ]
            spread(m, a, [Value.cast(word) for word in late])
        widths = exponent_widths(config)
        block = late_field(m, i, "block", weights_latency(config))
        m.d.comb += self.o.valid.eq(delay(m, self.i.valid, self.latency, reset=True))
        if config.slot_scales:
            m.d.comb += self.scaled.eq(delay(m, i.scaled, self.latency))
        part = late_field(m, i, "part", self.latency)
        lower = late_field(m, i, "lower", self.latency - 1)
        columns = []
        slots = slots_of(i)
        for index in range(config.array.cols):
            m.submodules[f"column_{index}"] = column = TreeColumn(
                config, side(config, index), widths[index]
            )
            columns.append(column)
            m.d.comb += column.slot.eq(slots[index % len(slots)])
            m.d.comb += assign(column, block=block, lower=lower) + carry(column, i, "part")
            total = column.o
            if config.passes > 1:
                total = shifted_to_part(total, part, config.array.pass_width, paired=config.paired)
            if config.array.wide:
                (total,) = in_place(m, [total], i.shifted, self.latency)
            m.d.comb += self.o.payload[index].eq(total)
            if config.slot_scales:
                m.d.comb += self.scales[index].eq(column.scale)
            m.d.comb += assign(column, live=live)
        for left, right in itertools.pairwise(columns):
            if right.side == "right":
                m.d.comb += [right.beside.eq(left.beside), left.product.eq(right.product)]
        if config.block_exponents:
            late = [self._shifted(columns, word, block) for word in late]
        m.d.comb += [
            column.a.eq(late[index * len(late) // config.array.cols])
            for index, column in enumerate(columns)
        ]
        self._write(m, columns)

    def _shifted(self, columns, late, block):
        """Return activations shifted left by the exponents of their rows in a ``block``."""
        shifted = []
        for row, element in enumerate(late):
            kept = Cat(column.exponents[row] for column in columns if column.exponent_width)
            shifted.append((element << Mux(block, kept, 0))[: columns[0].row_width])
        return Cat(shifted)

    def _write(self, m, columns):
        """Distribute a row's elements to the columns, or a column's elements to its rows."""
        config, line = self.config, self.i_weights.payload
        copies = [line, *(line.far if "far" in line.shape().members else [])]
        strobe = (
            line.strobe
            if has_column_copies(config)
            else strobes(config, self.i_weights.valid, line)
        )
        slots = slots_of(line)
        for index, column in enumerate(columns):
            m.d.comb += [
                column.write_slot.eq(slots[index % len(slots)]),
                column.strobe.eq(strobe[index]),
            ]
            near = copies[index // NEAR_COLUMNS if len(copies) > 1 else 0]
            elements = [
                Cat(element, element != 0) if config.array.operand_gating else element
                for element in near.data
            ]
            own = elements[index]
            if config.slot_scales:
                own = Cat(own, line.scale[index])
            if column.exponent_width:
                above = config.slot_exponents
                own = Cat(own, line.exponent[index * above :][: column.exponent_width])
            for row, weight in enumerate(column.weights):
                m.d.comb += weight.eq(
                    Mux(near.column, elements[row].as_unsigned(), own)
                    if config.array.b_transpose
                    else own
                )
