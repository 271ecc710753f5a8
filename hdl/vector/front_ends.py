"""The vector engine's front ends side by side."""

from amaranth.hdl import Cat, Module, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.isa import Engine
from hdl.component import Component
from hdl.memory.protected import error_port, errors_of, gather
from hdl.ports import command_layout
from hdl.vector.beats import beat_layout, collect, distribute, value_layout
from hdl.vector.decode import flag_layout, opcode_layout
from hdl.vector.fronts import MapFront, NormFront, SoftmaxFront


class FrontEnds(Component):
    """Leads the input ``i`` and the second input ``r`` through the front end of a command.

    With ``drain``, which a configuration has with ``fused``, the input of SOFTMAX and NORM is
    ``drained``. While the command is none of MAP, SOFTMAX and NORM nothing moves. The
    command holds still from ``start``, a cycle before the first beat at the latest,
    to the last value of ``o``; ``opcode`` and ``flag`` from a cycle later.
    """

    def __init__(self, config: Config):
        self.config = config
        beats = stream.Signature(beat_layout(config))
        members = {
            "start": In(1),
            "command": In(command_layout(Engine.VECTOR)),
            "opcode": In(opcode_layout()),
            "flag": In(flag_layout()),
            "i": In(beats),
            "r": In(beats),
            "o": Out(stream.Signature(value_layout(config.lanes))),
        }
        if config.fused:
            members["drained"] = In(beats)
        if config.norm:
            sums = data.ArrayLayout(signed(16), config.lanes)
            members["o_sum"] = Out(stream.Signature(sums))
        if config.softmax or config.norm:
            members |= error_port(config.protected("queues"))
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        opcode = self.opcode
        m.submodules.map = front = MapFront(self.config)
        m.d.comb += [front.wide.eq(self.flag.wide_in), front.zero.eq(self.command.i_zero)]
        inputs = [(opcode.map, front.i)]
        rows = []
        seconds = []
        values = [(opcode.map, front.o)]
        checked = []
        if self.config.softmax:
            front = self._softmax(m)
            checked.append(front)
            rows.append((opcode.softmax, front.i))
            values.append((opcode.softmax, front.o))
        if self.config.norm:
            front = self._norm(m)
            checked.append(front)
            rows.append((opcode.norm, front.i))
            seconds.append((opcode.norm, front.r))
            values.append((opcode.norm, front.o))
        distribute(m, self.i, inputs + rows)
        if self.config.fused:
            self._drained(m, rows)
        distribute(m, self.r, seconds)
        collect(m, values, self.o)
        gather(m, self, errors_of(checked))
        return m

    def _drained(self, m, rows):
        """Lead accumulators to those that take whole rows."""
        for strobe, sink in rows:
            with m.If(self.flag.drain):
                m.d.comb += [
                    sink.p.eq(self.drained.p),
                    sink.valid.eq(self.drained.valid & strobe),
                ]
            with m.If(strobe):
                m.d.comb += self.drained.ready.eq(sink.ready & self.flag.drain)

    def _softmax(self, m):
        command = self.command
        m.submodules.softmax = front = SoftmaxFront(self.config)
        m.d.comb += [
            front.start.eq(self.start),
            front.start_column.eq(command.start),
            front.start_step.eq(command.start_step),
            front.limit.eq(command.limit),
            front.limit_step.eq(command.limit_step),
            front.diagonal_en.eq(self.flag.diagonal),
            front.diagonal.eq(command.diagonal),
            front.diagonal_value.eq(command.diagonal_value),
        ]
        return front

    def _norm(self, m):
        command = self.command
        m.submodules.norm = front = NormFront(self.config)
        m.d.comb += [
            front.n.eq(command.n),
            front.rms.eq(self.flag.rms),
            front.add.eq(self.flag.add),
            front.eps.eq(Cat(command.eps_low, command.eps_high)),
        ]
        wiring.connect(m, front.o_sum, wiring.flipped(self.o_sum))
        return front
