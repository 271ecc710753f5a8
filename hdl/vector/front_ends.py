"""The front ends of the vector engine, which compute the values that its back end requantizes."""

from amaranth.hdl import Cat, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import FACTOR_SHIFT, Engine
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.component import Component
from celosia.hdl.functions.row_factors import factor_layout, numbered_layout
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.ports import command_layout
from celosia.hdl.stream.flow import Flow
from celosia.hdl.stream.pipeline import near
from celosia.hdl.vector.beats import beat_layout, collect, distribute, value_layout
from celosia.hdl.vector.decode import flag_layout, opcode_layout
from celosia.hdl.vector.fronts import MapFront, NormFront, SoftmaxFront


class FrontEnds(Component):
    """The front ends of MAP, SOFTMAX and NORM, which compute the values that are requantized.

    - ``i``: elements from the scratchpad.
    - ``drained``: elements from the accumulators, used instead of ``i`` with the flag ``drain``.
    - ``r``: elements of the second operand.
    - ``o``: the computed values.

    ``command`` must not change from the first input beat to the last beat on ``o``.
    """

    opcode: data.View
    """One bit for each opcode, decoded from ``command``."""
    flag: data.View
    """One bit for each flag, decoded from ``command``."""
    owes: Signal
    """1 from ``start`` until the first SOFTMAX has accepted its last input beat."""
    start: Signal
    """1 for one cycle before the first input beat of a SOFTMAX."""

    def __init__(self, config: VectorConfig):
        beats = stream.Signature(beat_layout(config.access))
        members = {
            # Before a SOFTMAX's first beat. ``owes`` is 1 until the previous SOFTMAX has been read.
            "start": In(1),
            # With ``registered``, from one cycle before the first input beat on.
            "command": In(command_layout(Engine.VECTOR)),
            # Decoded from ``command``, at most one cycle later.
            "opcode": In(opcode_layout()),
            "flag": In(flag_layout()),
            "i": In(beats),
            "r": In(beats),
            "o": Out(stream.Signature(value_layout(config.beat_lanes))),
        }
        if config.fused:
            members["drained"] = In(beats)
        if config.softmax:
            members["owes"] = Out(1)
        if config.vector.norm:
            sums = data.ArrayLayout(signed(16), config.vector.lanes)
            members["o_sum"] = Out(stream.Signature(sums))
        if config.row_factors and config.vector.norm:
            members["factor"] = Out(Flow(factor_layout()))
        if config.row_factors and config.softmax:
            members["sum_factor"] = Out(Flow(numbered_layout(config.row_factors)))
        if config.softmax or config.vector.norm:
            members |= error_port(config.protected("queues"))
        super().__init__(members)

    def circuit(self, m):
        opcode = self.opcode
        config = self.config
        m.submodules.map = front = MapFront(config.access, config.vector.lanes, config.beat_lanes)
        m.d.comb += [front.wide.eq(self.flag.wide_in), front.zero.eq(self.command.i_zero)]
        strobe = self._near(m, opcode.map)
        inputs = [(strobe, front.i)]
        rows = []
        seconds = []
        values = [(strobe, front.o)]
        checked = []
        if self.config.softmax:
            front = self._softmax(m)
            checked.append(front)
            strobe = self._near(m, opcode.softmax)
            rows.append((strobe, front.i))
            values.append((strobe, front.o))
        if self.config.vector.norm:
            front = self._norm(m)
            checked.append(front)
            strobe = self._near(m, opcode.norm)
            rows.append((strobe, front.i))
            seconds.append((strobe, front.r))
            values.append((strobe, front.o))
        distribute(m, self.i, inputs + rows)
        if self.config.fused:
            self._drained(m, rows)
        distribute(m, self.r, seconds)
        collect(m, self.config, values, self.o)
        gather(m, self, errors_of(checked))

    def _near(self, m, value):
        """Return a value for a front end; with ``registered`` from a separate register."""
        return near(m, value, stages=self.config.stages)

    def _drained(self, m, rows):
        """Connect the accumulators to the front ends that take whole rows."""
        for strobe, sink in rows:
            drains = self._near(m, self.flag.drain)
            with m.If(drains):
                m.d.comb += [
                    sink.p.eq(self.drained.p),
                    sink.valid.eq(self.drained.valid & strobe),
                ]
            with m.If(strobe):
                m.d.comb += self.drained.ready.eq(sink.ready & drains)

    def _softmax(self, m):
        command = self.command
        m.submodules.softmax = front = SoftmaxFront(self.config)
        m.d.comb += [
            front.start.eq(self._near(m, self.start)),
            self.owes.eq(front.owes),
            front.start_column.eq(self._near(m, command.start)),
            front.start_step.eq(self._near(m, command.start_step)),
            front.limit.eq(self._near(m, command.limit)),
            front.limit_step.eq(self._near(m, command.limit_step)),
            front.diagonal_en.eq(self._near(m, self.flag.diagonal)),
            front.diagonal.eq(self._near(m, command.diagonal)),
            front.diagonal_value.eq(self._near(m, command.diagonal_value)),
        ]
        if self.config.row_factors:
            m.d.comb += front.number.eq(self._near(m, command.params[FACTOR_SHIFT:]))
            wiring.connect(m, front.factor, wiring.flipped(self.sum_factor))
        return front

    def _norm(self, m):
        command = self.command
        m.submodules.norm = front = NormFront(self.config)
        m.d.comb += [
            front.n.eq(self._near(m, command.n)),
            front.rms.eq(self._near(m, self.flag.rms)),
            front.add.eq(self._near(m, self.flag.add)),
            front.eps.eq(self._near(m, Cat(command.eps_low, command.eps_high))),
        ]
        wiring.connect(m, front.o_sum, wiring.flipped(self.o_sum))
        if self.config.row_factors:
            wiring.connect(m, front.factor, wiring.flipped(self.factor))
        return front
