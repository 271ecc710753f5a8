"""The back end of the vector engine, which requantizes values and writes the output elements."""

from amaranth.hdl import Cat, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import COLUMN_WIDTH
from celosia.arch.latency import (
    POLYNOMIAL_WAIT,
    TABLE_LATENCY,
    epilogue_latency,
    requantizer_latency,
)
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.arithmetic.requantize import Requantizer
from celosia.hdl.component import Component
from celosia.hdl.functions.argmax import ArgmaxUnit, largest_layout
from celosia.hdl.functions.function_table import FunctionTable
from celosia.hdl.functions.rotary import RotaryUnit
from celosia.hdl.functions.table import LookupTable, TableWritePort
from celosia.hdl.memory.protected import error_port
from celosia.hdl.ports import WritePort
from celosia.hdl.stream.credits import CreditQueue
from celosia.hdl.stream.fields import inputs
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import slices
from celosia.hdl.vector.beats import beat_layout, elements, value_layout
from celosia.hdl.vector.bounds import OutputBounds
from celosia.hdl.vector.params import word_layout
from celosia.hdl.vector.walker import Walker, buffered_addresses, drive_walk_start, walk_layout


def saturate16(total: Value) -> Value:
    """Return a signed 17-bit sum clamped to signed 16 bits."""
    overflow = total[16] ^ total[15]
    return Mux(overflow, Cat((~total[16]).replicate(15), total[16]), total[:16])


class Epilogue(Component):
    """The back end of the vector engine: requantizes results, and writes the output elements.

    - ``start``: 1 at the beginning of a command.
    - ``done``: 1 at the last write of a command.
    - ``owes``: 1 from ``start`` until the command's first address is computed.
    - ``o_walk``: addresses of the output (:class:`Walker`). It must not change in the cycle of
      ``start``, in the next cycle with the option ``registered``, and while ``owes`` is 1.

    From ``start`` to ``done``, no other input may change, except streams.

    Throughput is one beat per cycle. Latency is at least ``latency`` cycles; ``rotate`` and
    ``times`` add ``RotaryUnit.latency``, and ``polynomial`` adds ``polynomial_latency``.
    """

    i: stream.Interface
    """32-bit results."""
    words: stream.Interface
    """Parameters; word k is for beat k of ``i``."""
    residual: stream.Interface
    """Operands for ``add``, ``rotate`` and ``times``."""
    largest: data.View
    """Result of ``argmax``."""
    add: Signal
    """1 to add the elements of ``residual``."""
    rotate: Signal
    """1 to rotate pairs of elements; ``residual`` has cosines and sines."""
    times: Signal
    """1 to multiply by the elements of ``residual``, less ``r_zero``."""
    polynomial: Signal
    """1 to evaluate the activation function as a polynomial, without a table lookup."""
    argmax: Signal
    """1 to search for the largest element."""
    column: Signal
    """The number of the command's first column."""
    look_up: Signal
    """1 to replace 8-bit elements by entries of activation table ``slot``."""
    r_zero: Signal
    """The zero point of the second operand."""
    relu: Signal
    """1 to replace elements below zero by zero."""
    slot: Signal
    """The activation table of ``look_up``."""
    wide: Signal
    """1 for output elements of 16 bits, 0 for 8 bits."""
    zero: Signal
    """The zero point of the output, which masked elements become."""

    polynomial_latency = POLYNOMIAL_WAIT
    """Cycles by which the result of a polynomial is later than the result of a table lookup."""

    def __init__(self, config: VectorConfig):
        lanes = config.beat_lanes
        members = {
            "start": In(1),
            "zero": In(signed(8)),  # zero point, and the element of results with ``keep`` at 0
            "wide": In(1),  # elements have 16 bits, else 8
            "relu": In(1),  # elements below ``zero`` become ``zero``
            "add": In(1),  # ``residual`` is added
            "look_up": In(1),  # elements become entries of table ``slot``
            "slot": In((config.table_slots - 1).bit_length()),
            "owes": Out(1),
            "done": Out(1),
            "i": In(stream.Signature(value_layout(lanes))),
            "residual": In(stream.Signature(beat_layout(config.access))),
            "words": In(stream.Signature(word_layout(config))),
            "o_walk": In(walk_layout(config.access.addr_width)),
            "write": Out(WritePort(config.access)),
        }
        if config.activation:
            members["table_write"] = In(TableWritePort(config.table_slots))
            members |= error_port(config.protected("parameters"))
        rotary, argmax = config.vector.rotary, config.vector.argmax
        members |= inputs(
            polynomial=config.wide_functions,  # equation (17)
            rotate=rotary,  # equation (9)
            times=rotary,  # equation (10)
            r_zero=Shape(8 * rotary, signed=rotary),
            argmax=argmax,
            column=COLUMN_WIDTH * argmax,  # the first column; a row of the search begins at 0
        )
        if argmax:
            members["largest"] = Out(largest_layout())
        super().__init__(members)
        assert self.latency == epilogue_latency(config)

    @property
    def latency(self) -> int:
        """Fewest cycles from a group of values on ``i`` to the write of the output elements."""
        return self.config.stages + self._depth + 1

    @property
    def _depth(self) -> int:
        """Cycles from a beat after the input register to its elements."""
        return self._requantized + TABLE_LATENCY * bool(self.config.activation)

    @property
    def _requantized(self) -> int:
        """Cycles from a beat after the input register to its requantized sums."""
        return requantizer_latency(registered=self.config.control.registered)

    def circuit(self, m):
        m.submodules.places = places = Walker(
            self.config.access.addr_width, stages=self.config.stages
        )
        values = slices(m, wiring.flipped(self.i), "door", stages=self.config.stages)
        room = Signal()
        m.d.comb += [
            places.walk.eq(self.o_walk),
            self.owes.eq(
                drive_walk_start(m, places, self.start, behind=self.config.fused is not None)
            ),
            values.ready.eq(room & self.words.valid),
            self.words.ready.eq(values.valid & room),
        ]
        accepted = values.valid & values.ready
        y = self._requantize(m, accepted, values.p)
        latency, valid = self._depth, delay(m, accepted, self._depth, reset=True)
        if self.config.wide_functions:
            latency += self.polynomial_latency
            valid, y = self._evaluate(m, valid, y)
        elif self.config.activation:
            y = self._look_up(m, y)
        # The queue that joins the second input: it may wait, so that the pipeline never does.
        shape = data.ArrayLayout(signed(16), self.config.beat_lanes)
        m.submodules.requantized = requantized = CreditQueue(shape, latency)
        m.d.comb += [
            room.eq(requantized.room),
            requantized.taken.eq(accepted),
            requantized.i.valid.eq(valid),
            *(requantized.i.payload[lane].eq(element) for lane, element in enumerate(y)),
        ]
        self._write(m, requantized.o, buffered_addresses(m, places, forward=not self.config.fused))

    def _requantize(self, m, accepted, beats):
        """Return the output elements of the beat accepted ``_requantized`` cycles ago."""
        config = self.config
        wide = self.wide | self._pairs()
        if config.wide_functions:
            wide |= self.polynomial
        # They hold from a command's first beat to its last write.
        m.submodules.bounds = bounds = OutputBounds(operand_width=config.array.operand_width)
        m.d.comb += [
            bounds.zero.eq(self.zero),
            bounds.wide.eq(wide),
            bounds.relu.eq(self.relu),
        ]
        keep = delay(m, beats.keep, self._requantized)
        y = []
        for lane in range(config.beat_lanes):
            word = self.words.p.word.lanes[lane % config.vector.lanes]
            unit = Requantizer(
                config.vector.multiplier_width, config.control.registered, sleep=config.array.sleep
            )
            m.submodules[f"requantizer_{lane}"] = unit
            m.d.comb += [
                unit.en.eq(1),
                *([unit.take.eq(accepted & beats.keep[lane])] if config.array.sleep else []),
                unit.x.eq(beats.value[lane]),
                unit.bias.eq(word.bias),
                unit.multiplier.eq(word.multiplier),
                unit.shift.eq(word.shift),
                unit.bounds.eq(bounds.o),
            ]
            y.append(Mux(keep[lane], unit.y, self.zero))
        return y

    def _look_up(self, m, y):
        """Return elements after the table lookup, or unchanged, ``TABLE_LATENCY`` cycles later."""
        level = self.config.protected("parameters")
        table = LookupTable(
            lanes=self.config.vector.lanes, slots=self.config.table_slots, level=level
        )
        return self._looked_up(m, y, table)

    def _evaluate(self, m, valid, y):
        """Return whether there is a beat, and its elements after polynomial or table lookup."""
        config = self.config
        table = FunctionTable(
            config.vector.lanes,
            config.table_slots,
            config.array.operand_width,
            config.protected("parameters"),
        )
        looked_up = self._looked_up(m, y, table)
        late = delay(m, valid & self.polynomial, self.polynomial_latency, reset=True)
        m.d.comb += table.polynomial.eq(self.polynomial)
        return Mux(self.polynomial, late, valid), [
            Mux(self.polynomial, result, element)
            for result, element in zip(table.result, looked_up, strict=False)
        ] + looked_up[config.vector.lanes :]

    def _looked_up(self, m, y, table):
        """Place a table and return its entries for elements or, by ``look_up``, the elements."""
        if "errors" in table.signature.members:
            m.d.comb += self.errors.eq(table.errors)
        m.submodules.table = table
        wiring.connect(m, wiring.flipped(self.table_write), table.write)
        m.d.comb += [
            table.en.eq(1),
            table.slot.eq(self.slot),
            *(index.eq(element) for index, element in zip(table.index, y, strict=False)),
        ]
        plain = [delay(m, element, TABLE_LATENCY) for element in y]
        return [
            Mux(self.look_up, value, element)
            for value, element in zip(table.value, plain, strict=False)
        ] + plain[self.config.vector.lanes :]

    def _write(self, m, requantized, places):
        """Join the residual, and keep the beat until it is written."""
        request = self.write.request
        written = data.StructLayout({"write": request.p.shape(), "last": 1})
        latency = RotaryUnit.latency if self.config.vector.rotary else 0
        m.submodules.out = out = CreditQueue(written, latency)
        held, waiting = Signal(written, reset_less=True), Signal()
        place, y = places.p, requantized.p
        needed = self.add | self._pairs()
        m.d.comb += [
            self.residual.ready.eq(requantized.valid & needed & out.room),
            requantized.ready.eq(out.room & (~needed | self.residual.valid)),
            out.taken.eq(requantized.valid & requantized.ready),
        ]
        valid = out.taken
        residuals = elements(self.residual.p, self.config.vector.lanes, 2)
        wide = []
        for lane, (element, residual) in enumerate(zip(y, residuals, strict=False)):
            total = Signal(signed(17), name=f"total_{lane}")
            m.d.comb += total.eq(element + Mux(self.add, residual, 0))
            wide.append(saturate16(total))
        narrow = [element[:8] for element in y]
        if self.config.vector.rotary:
            valid, wide, narrow = self._rotate(m, valid, y, wide)
        m.d.comb += [
            out.i.valid.eq(valid),
            out.i.payload.write.addr.eq(place.addr),
            out.i.payload.write.count.eq(Mux(self.wide, place.count << 1, place.count)),
            out.i.payload.write.data.eq(Mux(self.wide, Cat(wide), Cat(narrow))),
            out.i.payload.last.eq(place.last),
            out.o.ready.eq(~waiting | request.ready),
            places.ready.eq(out.i.valid),
            request.valid.eq(waiting),
            request.p.eq(held.write),
            self.done.eq(waiting & request.ready & held.last),
        ]
        with m.If(out.o.ready):
            m.d.sync += [waiting.eq(out.o.valid), held.eq(out.o.p)]
        if self.config.vector.argmax:
            self._find_largest(m, out.i.valid, out.i.payload.write.data, place)

    def _pairs(self):
        """Return whether the second input rotates or multiplies."""
        return self.rotate | self.times if self.config.vector.rotary else 0

    def _rotate(self, m, valid, y, wide):
        """Return whether there is a beat, and its elements of 16 and 8 bits, rotated or not."""
        lanes = self.config.vector.lanes
        m.submodules.rotary = unit = RotaryUnit(lanes, self.config.array.operand_width)
        m.d.comb += [
            unit.en.eq(1),
            unit.times.eq(self.times),
            unit.wide.eq(self.wide),
            unit.r_zero.eq(self.r_zero),
            Cat(unit.y).eq(Cat(y[lane] for lane in range(lanes))),
            Cat(unit.pairs).eq(Cat(elements(self.residual.p, lanes, 2))),
            Cat(unit.r).eq(Cat(elements(self.residual.p, lanes, 1))),
        ]
        pairs = self._pairs()
        rotated = delay(m, valid & pairs, unit.latency, reset=True)
        return (
            Mux(pairs, rotated, valid),
            [Mux(pairs, unit.o[lane], wide[lane])[:16] for lane in range(lanes)],
            [Mux(pairs, unit.o[lane], y[lane])[:8] for lane in range(lanes)]
            + [element[:8] for element in [*y][lanes:]],
        )

    def _find_largest(self, m, written, out, place):
        """Report the largest element that is about to be written, one cycle later."""
        lanes = self.config.vector.lanes
        m.submodules.argmax = unit = ArgmaxUnit(lanes)
        column, first = Signal(COLUMN_WIDTH), Signal()
        with m.If(self.start):
            m.d.sync += [column.eq(self.column), first.eq(self.column == 0)]
        with m.Elif(written):
            m.d.sync += [column.eq(column + place.count), first.eq(0)]
        for lane in range(lanes):
            wide = out.as_value().word_select(lane, 16).as_signed()
            narrow = out.as_value().word_select(lane, 8).as_signed()
            element = delay(m, Mux(self.wide, wide, narrow), 1)
            m.d.comb += unit.i[lane].eq(element)
        m.d.comb += [
            unit.valid.eq(delay(m, written & self.argmax, 1, reset=True)),
            unit.fresh.eq(delay(m, first, 1)),
            unit.count.eq(delay(m, place.count, 1)),
            unit.column.eq(delay(m, column, 1)),
            self.largest.eq(unit.o),
        ]
