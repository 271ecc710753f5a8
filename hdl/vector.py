"""The vector engine: every instruction from accumulators or scratchpad back to the scratchpad."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from arch.config import Config
from arch.isa import DEFINITIONS, Engine, Opcode
from hdl.drain import DrainReader
from hdl.epilogue import Epilogue, ParamMemory
from hdl.fill import Fill
from hdl.fronts import ElementwiseFront, NormFront, SoftmaxFront, elements
from hdl.ports import (
    DrainPort,
    EngineStatus,
    MaskWritePort,
    ReadPort,
    TracePort,
    WritePort,
    command_layout,
)
from hdl.reader import RowReader
from hdl.walker import Walker


class VectorEngine(wiring.Component):
    """Runs DRAIN, MAP, SOFTMAX, NORM, ADD, MUL, SCAN, PARAMS, TABLE and MASK, one after the other.

    A command reads through ``v`` (the input) and ``r`` (the second input or the residual) or
    ``drain`` (the accumulators), passes its front end and the epilogue, and writes through ``o``
    (the output) and ``s`` (the sum written back by NORM); ``lanes`` elements a cycle. The command
    is taken when its last write was, together with ``status.done``.
    """

    def __init__(self, config: Config):
        self.config = config
        members = {
            "i": In(stream.Signature(command_layout(Engine.VECTOR))),
            "status": Out(EngineStatus()),
            "v": Out(ReadPort(config)),
            "r": Out(ReadPort(config)),
            "drain": Out(DrainPort(config)),
            "o": Out(WritePort(config)),
        }
        if config.norm:
            members["s"] = Out(WritePort(config))
        if config.tile_skip:
            members["mask"] = Out(MaskWritePort(config))
        if config.trace:
            members["trace"] = Out(TracePort(config))
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        config = self.config
        m.submodules.reader = reader = RowReader(config)
        m.submodules.second = second = RowReader(config)
        m.submodules.accumulators = accumulators = DrainReader(config)
        m.submodules.params = params = ParamMemory(config)
        m.submodules.epilogue = epilogue = Epilogue(config)
        m.submodules.fill = fill = Fill(config)
        wiring.connect(m, reader.port, wiring.flipped(self.v))
        wiring.connect(m, second.port, wiring.flipped(self.r))
        wiring.connect(m, accumulators.port, wiring.flipped(self.drain))
        wiring.connect(m, epilogue.write, wiring.flipped(self.o))
        if config.activation:
            wiring.connect(m, fill.table_write, epilogue.table_write)
        if config.tile_skip:
            wiring.connect(m, fill.mask_write, wiring.flipped(self.mask))

        cmd = self.i.p
        decode = _Decoder(cmd)
        start, begun = Signal(), Signal()
        filling = decode.any(Opcode.PARAMS, Opcode.TABLE, Opcode.MASK, Opcode.SCAN)
        self._walks(m, decode, reader, second, accumulators, epilogue, start, filling)
        self._fill(m, decode, fill, params, epilogue, start)
        written = self._fronts(m, decode, reader, second, accumulators, epilogue, fill, start)

        requests = [port.request for port in (self.v, self.r, self.drain, self.o)]
        if config.norm:
            requests.append(self.s.request)
        m.d.comb += [
            params.write_data.eq(reader.o.p.data.as_value()),
            self.status.done.eq(self.i.valid & Mux(filling, fill.done, written)),
            self.status.push.eq(cmd.push),
            self.status.busy.eq(self.i.valid),
            self.status.stall.eq(Cat(request.valid & ~request.ready for request in requests).any()),
            self.i.ready.eq(self.status.done),
        ]
        with m.If(start):
            m.d.sync += begun.eq(1)
        with m.If(self.status.done):
            m.d.sync += begun.eq(0)
        self._start(m, decode, params, epilogue, start, begun)
        if config.trace:
            self._trace(m)
        return m

    def _start(self, m, decode, params, epilogue, start, begun):
        """Start a command at once, an addition after reading the parameters of its inputs."""
        waiting = self.i.valid & ~begun
        m.d.comb += [
            params.read_addr.eq(epilogue.param_addr),
            params.read_en.eq(epilogue.param_en),
        ]
        if not self.config.elementwise:
            m.d.comb += start.eq(waiting)
            return
        adding = decode.any(Opcode.ADD)
        fetched = Signal(2)
        m.d.comb += start.eq(waiting & (~adding | (fetched == 2)))
        with m.If(waiting & adding):
            m.d.sync += fetched.eq(Mux(start, 0, fetched + 1))
            m.d.comb += [params.read_addr.eq(self.i.p.params + fetched), params.read_en.eq(1)]
        front = self._elementwise
        with m.If(waiting & (fetched == 1)):
            m.d.sync += [
                front.i_multiplier.eq(params.read_data.lanes[0].multiplier),
                front.i_shift.eq(params.read_data.lanes[0].shift),
            ]
        with m.If(waiting & (fetched == 2)):
            m.d.sync += [
                front.r_multiplier.eq(params.read_data.lanes[0].multiplier),
                front.r_shift.eq(params.read_data.lanes[0].shift),
            ]

    def _walks(self, m, decode, reader, second, accumulators, epilogue, start, filling):
        """Describe to every reader and writer the elements that the command touches."""
        config, cmd = self.config, self.i.p
        lanes = config.lanes
        drain = decode.any(Opcode.DRAIN)
        wide_in = decode.flag("wide_in") | decode.any(Opcode.SOFTMAX, Opcode.NORM)
        wide_out = decode.flag("wide_out")
        pairs = decode.any(Opcode.ADD, Opcode.MUL)
        adds = decode.flag("add")

        walk = reader.walk
        m.d.comb += [
            walk.base.eq(cmd.i_addr),
            walk.beat_step.eq(Mux(wide_in, 2 * lanes, lanes)),
            walk.row_step.eq(cmd.i_stride),
            walk.m.eq(cmd.m),
            walk.n.eq(cmd.n),
            walk.beat.eq(lanes),
            walk.tile.eq(cmd.n),
            reader.start.eq(start & ~drain),
        ]
        with m.If(decode.any(Opcode.SCAN)):
            rows = config.rows
            m.d.comb += [walk.beat.eq(rows), walk.tile.eq(rows), walk.tile_step.eq(rows)]
        with m.If(decode.any(Opcode.PARAMS)):
            word = config.param_lines * config.line_bytes
            m.d.comb += [
                walk.m.eq(cmd.n),
                walk.n.eq(word),
                walk.tile.eq(word),
                walk.row_step.eq(word),
                walk.beat.eq(config.line_bytes),
                walk.beat_step.eq(config.line_bytes),
            ]
        with m.If(decode.any(Opcode.TABLE, Opcode.MASK)):
            m.d.comb += [walk.m.eq(1), walk.beat.eq(1), walk.beat_step.eq(1)]
            with m.If(decode.any(Opcode.TABLE)):
                m.d.comb += [walk.n.eq(256), walk.tile.eq(256)]

        columns = [
            ("m", cmd.m),
            ("n", cmd.n),
            ("beat", lanes),
            ("tile", Mux(drain, config.cols, cmd.n)),
        ]
        for target, base, step, wide, run in (
            (second.walk, cmd.r_addr, cmd.r_stride, ~pairs, pairs | adds),
            (epilogue.o_walk, cmd.o_addr, cmd.o_stride, wide_out, ~filling),
        ):
            m.d.comb += [
                target.base.eq(base),
                target.row_step.eq(step),
                target.beat_step.eq(Mux(wide, 2 * lanes, lanes)),
                target.tile_step.eq(Mux(wide, 2 * config.cols, config.cols)),
                *(target[name].eq(value) for name, value in columns),
            ]
            starter = second.start if target is second.walk else epilogue.start
            m.d.comb += starter.eq(start & run)
        per_tensor = decode.flag("per_tensor")
        m.d.comb += [
            epilogue.param_walk.base.eq(cmd.params + Mux(decode.any(Opcode.ADD), 2, 0)),
            epilogue.param_walk.beat_step.eq(~per_tensor),
            epilogue.param_walk.tile_step.eq(Mux(per_tensor, 0, config.lane_groups)),
            *(epilogue.param_walk[name].eq(value) for name, value in columns),
            accumulators.start.eq(start & drain),
            accumulators.acc_addr.eq(cmd.acc_addr),
            accumulators.acc_stride.eq(cmd.acc_stride),
            accumulators.m.eq(cmd.m),
            accumulators.n.eq(cmd.n),
            epilogue.zero.eq(cmd.o_zero),
            epilogue.wide.eq(wide_out),
            epilogue.relu.eq(decode.flag("relu")),
            epilogue.add.eq(adds & ~decode.any(Opcode.NORM)),
            epilogue.look_up.eq(decode.flag("table")),
            epilogue.slot.eq(cmd.table),
        ]

    def _fill(self, m, decode, fill, params, epilogue, start):
        cmd = self.i.p
        m.d.comb += [
            fill.start.eq(start),
            fill.params.eq(decode.any(Opcode.PARAMS)),
            fill.table.eq(decode.any(Opcode.TABLE)),
            fill.mask.eq(decode.any(Opcode.MASK)),
            fill.scan.eq(decode.any(Opcode.SCAN)),
            fill.zero.eq(cmd.i_zero),
            fill.addr.eq(Mux(fill.params, cmd.params, Mux(fill.table, cmd.table, cmd.mask))),
            params.write_en.eq(fill.param_en),
            params.write_addr.eq(fill.param_addr),
            params.write_line.eq(fill.param_line),
            params.read_addr.eq(epilogue.param_addr),
            epilogue.params.eq(params.read_data),
        ]

    def _fronts(self, m, decode, reader, second, accumulators, epilogue, fill, start):
        """Lead the readers' beats through the command's front end; return when all is written."""
        config, cmd, lanes = self.config, self.i.p, self.config.lanes
        residual = Signal()
        m.d.comb += [
            residual.eq(epilogue.add),
            Cat(epilogue.residual.p).eq(Cat(elements(second.o.p, lanes, 2))),
            epilogue.residual.valid.eq(second.o.valid & residual),
        ]
        with m.If(residual):
            m.d.comb += second.o.ready.eq(epilogue.residual.ready)

        def lead(front):
            return [
                epilogue.i.p.eq(front.o.p),
                epilogue.i.valid.eq(front.o.valid),
                front.o.ready.eq(epilogue.i.ready),
            ]

        def feed(sink, source):
            return [
                sink.p.eq(source.p),
                sink.valid.eq(source.valid),
                source.ready.eq(sink.ready),
            ]

        with m.If(decode.any(Opcode.DRAIN)):
            m.d.comb += [
                Cat(epilogue.i.p.value).eq(Cat(accumulators.o.p)),
                epilogue.i.p.keep.eq(-1),
                epilogue.i.valid.eq(accumulators.o.valid),
                accumulators.o.ready.eq(epilogue.i.ready),
            ]
        with m.Elif(decode.any(Opcode.MAP)):
            narrow, wide = elements(reader.o.p, lanes, 1), elements(reader.o.p, lanes, 2)
            for lane in range(lanes):
                element = Mux(decode.flag("wide_in"), wide[lane], narrow[lane])
                m.d.comb += epilogue.i.p.value[lane].eq(element - cmd.i_zero[:8].as_signed())
            m.d.comb += [
                epilogue.i.p.keep.eq(-1),
                epilogue.i.valid.eq(reader.o.valid),
                reader.o.ready.eq(epilogue.i.ready),
            ]
        with m.Elif(decode.any(Opcode.PARAMS, Opcode.TABLE, Opcode.MASK, Opcode.SCAN)):
            m.d.comb += feed(fill.i, reader.o)
        if config.softmax:
            m.submodules.softmax = front = SoftmaxFront(config)
            m.d.comb += [
                front.start.eq(start),
                front.start_column.eq(cmd.start),
                front.start_step.eq(cmd.start_step),
                front.limit.eq(cmd.limit),
                front.limit_step.eq(cmd.limit_step),
                front.diagonal_en.eq(decode.flag("diagonal")),
                front.diagonal.eq(cmd.diagonal),
                front.diagonal_value.eq(cmd.diagonal_value),
            ]
            with m.If(decode.any(Opcode.SOFTMAX)):
                m.d.comb += [*feed(front.i, reader.o), *lead(front)]
        if config.elementwise:
            m.submodules.elementwise = front = self._elementwise = ElementwiseFront(config)
            m.d.comb += [
                front.multiply.eq(decode.any(Opcode.MUL)),
                front.i_zero.eq(cmd.i_zero),
                front.r_zero.eq(cmd.r_zero),
            ]
            with m.If(decode.any(Opcode.ADD, Opcode.MUL)):
                m.d.comb += [*feed(front.i, reader.o), *feed(front.r, second.o), *lead(front)]
        if not config.norm:
            return epilogue.done
        return self._norm(m, decode, reader, second, epilogue, start, lead, feed)

    def _norm(self, m, decode, reader, second, epilogue, start, lead, feed):
        config, cmd = self.config, self.i.p
        m.submodules.norm = front = NormFront(config)
        m.submodules.sums = sums = Walker(config.sp_addr_width)
        writes = decode.flag("write_sum")
        m.d.comb += [
            front.n.eq(cmd.n),
            front.rms.eq(decode.flag("rms")),
            front.add.eq(decode.flag("add")),
            front.eps.eq(Cat(cmd.eps_low, cmd.eps_high)),
            sums.start.eq(start & writes),
            sums.walk.base.eq(cmd.s_addr),
            sums.walk.row_step.eq(cmd.s_stride),
            sums.walk.beat_step.eq(2 * config.lanes),
            sums.walk.m.eq(cmd.m),
            sums.walk.n.eq(cmd.n),
            sums.walk.beat.eq(config.lanes),
            sums.walk.tile.eq(cmd.n),
        ]
        request = self.s.request
        m.d.comb += [
            request.p.addr.eq(sums.o.p.addr),
            request.p.count.eq(sums.o.p.count << 1),
            request.p.data.eq(Cat(front.o_sum.p)),
            request.valid.eq(front.o_sum.valid & writes),
            front.o_sum.ready.eq(request.ready | ~writes),
            sums.o.ready.eq(request.valid & request.ready),
        ]
        with m.If(decode.any(Opcode.NORM)):
            m.d.comb += [*feed(front.i, reader.o), *lead(front)]
            m.d.comb += [
                front.r.p.eq(second.o.p),
                front.r.valid.eq(second.o.valid),
                second.o.ready.eq(front.r.ready),
            ]
        # The sums may be written later than the outputs, which wait for whole rows.
        ended = Signal()
        written = Signal()
        m.d.comb += written.eq((epilogue.done | ended) & ~sums.o.valid)
        with m.If(epilogue.done & ~written):
            m.d.sync += ended.eq(1)
        with m.If(written):
            m.d.sync += ended.eq(0)
        return written

    def _trace(self, m):
        m.d.comb += [
            self.trace.retire.eq(self.status.done),
            self.trace.o_valid.eq(self.o.request.valid & self.o.request.ready),
            self.trace.o_write.eq(self.o.request.p),
        ]
        if self.config.norm:
            m.d.comb += [
                self.trace.s_valid.eq(self.s.request.valid & self.s.request.ready),
                self.trace.s_write.eq(self.s.request.p),
            ]


class _Decoder:
    """Tells what the command at hand is."""

    def __init__(self, command):
        self._command = command

    def any(self, *opcodes: Opcode):
        return Cat(self._command.opcode == opcode for opcode in opcodes).any()

    def flag(self, name: str):
        """Whether the command's flag is set, by that flag's place in each instruction."""
        return Cat(
            self.any(definition.opcode) & self._command.flags[definition.flag_bit(name)]
            for definition in DEFINITIONS.values()
            if definition.engine == Engine.VECTOR and name in definition.flags
        ).any()
