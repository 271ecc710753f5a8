"""One processing element of the systolic array."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib.wiring import In, Out

from celosia.arch.formats import OPERAND_BITS
from celosia.arch.latency import REGISTER_DEPTH, part_width
from celosia.hdl.arithmetic.multiplier import Multiplier, PackedMultiplier
from celosia.hdl.component import Component
from celosia.hdl.matrix.pairs import multiply_weight, pair_members
from celosia.hdl.matrix.parts import PartAdder, add_carry, part_layout, part_of
from celosia.hdl.memory.ram import Ram


def weight_registers(
    m: Module,
    *,
    name: str,
    depth: int,
    write_en: ValueLike,
    write_slot: ValueLike,
    data: Value,
    slot: ValueLike,
) -> Value:
    """Instantiate registers for ``depth`` weights, one per slot; return the weight of ``slot``.

    In a cycle with ``write_en`` at 1, ``data`` is written to slot ``write_slot``; the returned
    value changes in the next cycle.
    """
    held = [Signal(len(data), name=f"{name}_{index}") for index in range(depth)]
    for index, weight in enumerate(held):
        with m.If(write_en & (write_slot == index)):
            m.d.sync += weight.eq(data)
    chosen = Signal(len(data), name=name)
    m.d.comb += chosen.eq(Array(held)[slot])
    return chosen


class ProcessingElement(Component):
    """Multiplies an activation by a stored weight, and adds the sum of the element above.

    - ``a_i``, ``slot_i``, ``part_i``: activation, number of its weight, and the weight's bits to
      use.
    - ``sum_o``: product of ``a_i`` of cycle t plus ``sum_i`` of cycle t + 3, in cycle t + 4; later
      with shared multipliers.
    - ``row_strobe_i``: writes ``column_data`` to weight ``row_slot_i``.
    - ``column_strobe_i``: writes ``row_data`` to weight ``column_slot_i``.
    - ``NAME_live``, ``live_i``: 0 if the weight to write, or the activation, is zero.
    - ``awake_i``: 0 if the activation counts as 0.
    - ``beside``, ``product``: :func:`pair_members`.

    Every other ``NAME_o`` is ``NAME_i``, one cycle later. A weight must not be used while it is
    written.
    """

    def __init__(
        self,
        *,
        weight_depth: int,
        width: int,
        sum_i_width: int,
        sum_o_width: int,
        gating: bool,
        transpose: bool,
        sleep: bool = False,
        side: str = "",
        pass_width: int = OPERAND_BITS,
    ):
        self.part_width = part_width(pass_width) if pass_width < OPERAND_BITS else width
        operand, slot = signed(width), range(weight_depth)
        members = {
            "a_i": In(operand),
            "a_o": Out(operand),
            "slot_i": In(slot),
            "slot_o": Out(slot),
            "sum_o": Out(signed(sum_o_width)),
            "column_data": In(operand),
            "row_strobe_i": In(1),
            "row_strobe_o": Out(1),
            "row_slot_i": In(slot),
            "row_slot_o": Out(slot),
        }
        if sum_i_width:
            members["sum_i"] = In(signed(sum_i_width))
        if gating:
            members |= {"live_i": In(1), "live_o": Out(1), "column_live": In(1)}
        if transpose:
            members |= {
                "row_data": In(operand),
                "column_strobe_i": In(1),
                "column_strobe_o": Out(1),
                "column_slot_i": In(slot),
                "column_slot_o": Out(slot),
            }
        if transpose and gating:
            members["row_live"] = In(1)
        if sleep:
            members |= {"awake_i": In(1), "awake_o": Out(1)}
        if pass_width < OPERAND_BITS:
            part = part_layout(pass_width)
            members |= {"part_i": In(part), "part_o": Out(part)}
        beside = unsigned(self.part_width + gating)
        product = signed(width + self.part_width)
        super().__init__(members | pair_members(side, beside, product))

    def circuit(self, m):
        awake, live = Const(1, 1), Const(1, 1)
        if self.sleep:
            awake, live = self.awake_i, self.awake_o
            m.d.sync += self.awake_o.eq(awake)
        with m.If(awake):
            m.d.sync += self.slot_o.eq(self.slot_i)
        m.d.sync += [
            self.row_strobe_o.eq(self.row_strobe_i),
            self.row_slot_o.eq(self.row_slot_i),
        ]
        if self.transpose:
            m.d.sync += [
                self.column_strobe_o.eq(self.column_strobe_i),
                self.column_slot_o.eq(self.column_slot_i),
            ]
        if self.gating:
            awake, live = awake & self.live_i, self.live_o
            m.d.sync += live.eq(awake)
        with m.If(awake):
            m.d.sync += self.a_o.eq(self.a_i)
        weight = self._weight(m, awake)
        if self.pass_width < OPERAND_BITS:
            m.d.sync += self.part_o.eq(self.part_i)
            weight = part_of(weight, self.part_o, self.pass_width)
        if self.pass_width == 1:
            m.submodules.adder = adder = PartAdder(self.width)
            m.d.comb += [adder.a.eq(self.a_o), adder.b.eq(weight)]
            above = self.sum_i if self.sum_i_width else Const(0, signed(1))
            m.d.sync += self.sum_o.eq(add_carry(above, adder.p, adder.carry))
            return
        # The left sum is a cycle later than without sharing; products that overlap add another.
        if self.side == "left":
            m.d.sync += self.beside.eq(weight)
            product = self.product
        else:
            product = self._multiply(m, weight, live)
        m.d.sync += self.sum_o.eq(self.sum_i + product if self.sum_i_width else product)

    def _multiply(self, m, weight, live):
        """Return the product of the ``live`` activation in ``a_o``, or both in a right element."""
        right, gating = self.side == "right", self.gating or self.sleep
        kind = PackedMultiplier if right else Multiplier
        multiplier = kind(self.width, b_width=self.part_width, gating=gating)
        m.submodules.multiplier = multiplier
        if self.gating:
            live = live & (weight[-1] | self.beside[-1] if right else weight[-1])
        if gating:
            blank = Signal()
            m.d.comb += [multiplier.en.eq(live), multiplier.clear.eq(blank)]
            m.d.sync += blank.eq(~live)
        pair = (self.beside, self.product) if right else None
        return multiply_weight(m, multiplier, self.a_o, weight, pair)

    def _weight(self, m, enters):
        """Return the weight of the activation in ``a_o``, with its live bit uppermost.

        ``enters``: a live activation enters in this cycle.
        """
        write, slot = self.row_strobe_i, self.row_slot_i
        loaded = Cat(self.column_data, self.column_live) if self.gating else self.column_data
        if self.transpose:
            other = Cat(self.row_data, self.row_live) if self.gating else self.row_data
            write = write | self.column_strobe_i
            slot = Mux(self.row_strobe_i, slot, self.column_slot_i)
            loaded = Mux(self.row_strobe_i, loaded, other)
        loaded = Value.cast(loaded)
        if self.weight_depth <= REGISTER_DEPTH:
            return weight_registers(
                m,
                name="weight",
                depth=self.weight_depth,
                write_en=write,
                write_slot=slot,
                data=loaded,
                slot=self.slot_o,
            )
        # A read of the slot written in the same cycle is never used.
        m.submodules.weight = memory = Ram(len(loaded), self.weight_depth, ordered=False)
        m.d.comb += [
            memory.write_en.eq(write),
            memory.write_addr.eq(slot),
            memory.write_data.eq(loaded),
            memory.read_en.eq(enters),
            memory.read_addr.eq(self.slot_i),
        ]
        return memory.read_data
