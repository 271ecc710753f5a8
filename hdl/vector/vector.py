"""The vector engine, which runs every instruction that writes results to the scratchpad."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.isa import Definition, Engine
from celosia.arch.latency import SECOND_AHEAD
from celosia.arch.protection import LEVELS
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.component import Component
from celosia.hdl.functions.argmax import largest_layout
from celosia.hdl.memory.protected import error_port, errors_of, gather
from celosia.hdl.ports import (
    DrainPort,
    EngineStatus,
    ReadPort,
    TracePort,
    WritePort,
    command_layout,
)
from celosia.hdl.stream.fields import assign
from celosia.hdl.stream.pipeline import KEPT, delay
from celosia.hdl.stream.slice import RegisterSlice, slices_before
from celosia.hdl.vector.beats import collect, distribute
from celosia.hdl.vector.decode import VectorDecoder
from celosia.hdl.vector.drain import DrainReader
from celosia.hdl.vector.epilogue import Epilogue
from celosia.hdl.vector.fill import Fill
from celosia.hdl.vector.front_ends import FrontEnds
from celosia.hdl.vector.intake import Intake
from celosia.hdl.vector.kept_factors import KeptFactors
from celosia.hdl.vector.overlap import Overlap
from celosia.hdl.vector.params import ParamMemory, sums_stages
from celosia.hdl.vector.reader import RowReader
from celosia.hdl.vector.sums import SumWriter
from celosia.hdl.vector.walks import VectorWalks


class VectorEngine(Component):
    """Runs the commands DRAIN, MAP, SOFTMAX, NORM, PARAMS and TABLE, in the order of arrival.

    - ``i``: a command, which stays until it is accepted in the cycle of its last write.
      ``status.done`` is 1 in this cycle. A command with the flag ``followed`` may be accepted once
      its input is requested.
    - ``drain``: reads accumulators for DRAIN, and with the flag ``drain`` for SOFTMAX and NORM.
    - ``v``: reads the input of other commands.
    - ``r``: reads the second operand.
    - ``o``: writes the output. It may overwrite the input if its elements are not wider.
    - ``s``: writes the sums that a NORM normalizes.
    - ``largest``: result of the flag ``argmax``, ``ArgmaxUnit.latency`` cycles after
      ``status.done``.
    """

    # Cycles of a command for m rows of n columns (PARAMS: n words), from its offer on ``i`` to
    # ``done``, if the engine never waits. A row has ``row`` beats, and all rows have ``beats``.
    #
    # DRAIN     beats + drain_latency + Epilogue.latency
    # MAP       beats + reader_latency + Epilogue.latency
    # SOFTMAX   as MAP, + SoftmaxUnit.latency + 2 * (row - 1)
    # NORM      as MAP, + AddNormUnit.latency + row - 1
    # PARAMS    n * param_lines + reader_latency
    # TABLE     256 + reader_latency
    #
    # ``rotate`` and ``times`` add RotaryUnit.latency, ``polynomial`` Epilogue.polynomial_latency,
    # ``registered`` 3 for SOFTMAX and NORM and 1 for others. With the flag ``drain``,
    # drain_latency + Intake.latency replaces reader_latency. With ``row_factors``, NORM takes 1
    # more than MAP, SOFTMAX row - 1 less; DRAIN and MAP take ``words_wait`` more.
    def __init__(self, config: VectorConfig, instructions: Sequence[Definition]):
        self.instructions = tuple(instructions)
        members = {
            "i": In(stream.Signature(command_layout(Engine.VECTOR))),
            "status": Out(EngineStatus()),
            "v": Out(ReadPort(config.access)),
            "r": Out(ReadPort(config.access)),
            "drain": Out(DrainPort(config.accumulators, config.array.cols)),
            "o": Out(WritePort(config.access)),
        }
        if config.vector.norm:
            members["s"] = Out(WritePort(config.access))
        if config.vector.argmax:
            members["largest"] = Out(largest_layout())
        if config.control.trace:
            members["trace"] = Out(TracePort(config.access))
        levels = {config.protected(unit) for unit in ("parameters", "queues")}
        members |= error_port(max(levels, key=LEVELS.index))
        super().__init__(members)

    def circuit(self, m):
        config = self.config
        m.submodules.decoder = decoder = VectorDecoder(self.instructions)
        m.submodules.walks = walks = VectorWalks(config)
        m.submodules.reader = reader = RowReader(config.access, stages=config.stages)
        m.submodules.second = second = RowReader(
            config.access,
            stages=config.stages,
            wraps=config.vector.rotary,
            ahead=SECOND_AHEAD * bool(config.fused),
        )
        m.submodules.accumulators = accumulators = DrainReader(config)
        m.submodules.fronts = fronts = FrontEnds(config)
        m.submodules.params = params = ParamMemory(config, factored=config.row_factors > 0)
        memories = [params]
        m.submodules.fill = fill = Fill(config)
        m.submodules.epilogue = epilogue = Epilogue(config)
        m.submodules.overlap = overlap = Overlap(
            stages=config.stages, fused=config.fused is not None
        )
        command, opcode, flag = self.i.p, decoder.opcode, decoder.flag
        # The data path follows registers: no data arrive in a command's first cycle.
        opcode_r, flag_r = Signal.like(opcode), Signal.like(flag)
        m.d.sync += [opcode_r.eq(opcode), flag_r.eq(flag)]
        last = overlap.o  # the command of the next write
        start, written = Signal(), Signal()
        pairs = flag.rotate | flag.times if config.vector.rotary else 0
        pairs_r = delay(m, pairs, 1)
        fills = opcode.params | opcode.table
        filling = delay(m, fills, 1)
        drains = opcode.drain | flag.drain if config.fused else opcode.drain
        adds = flag.add | pairs
        # A normalization adds before its unit, not after it.
        adding = delay(m, flag.add & ~opcode.norm, 1)
        # With registers between units a command starts a cycle later, when it is decoded.
        stages = config.stages
        opcode, flag = (opcode, opcode_r)[stages], (flag, flag_r)[stages]
        pairs, fills = (pairs, pairs_r)[stages], (fills, filling)[stages]
        drains, adds = delay(m, drains, stages), delay(m, adds, stages)

        # The decoded command, and the units that take part in it.
        m.d.comb += [
            decoder.command.eq(last),
            walks.command.eq(command),
            walks.opcode.eq(decoder.opcode),
            walks.flag.eq(decoder.flag),
            reader.walk.eq(self._registered(m, walks.i)),
            reader.start.eq(start & ~drains),
            second.walk.eq(self._registered(m, walks.r)),
            second.start.eq(start & adds),
            *(
                getattr(accumulators, name).eq(self._registered(m, command[name]))
                for name in ("acc_addr", "acc_stride", "m", "n")
            ),
            accumulators.start.eq(start & drains),
            fronts.command.eq(command),
            fronts.opcode.eq(opcode_r),
            fronts.flag.eq(flag_r),
            fronts.start.eq(start & opcode.softmax),
        ]
        connect(m, reader.port, flipped(self.v))
        connect(m, second.port, flipped(self.r))
        connect(m, accumulators.port, flipped(self.drain))
        connect(m, params.o, epilogue.words)
        connect(m, epilogue.write, flipped(self.o))
        if config.activation:
            connect(m, fill.table_write, epilogue.table_write)

        # The data path.
        distribute(m, reader.o, [(filling, fill.i), (~filling, fronts.i)])
        m.d.comb += epilogue.add.eq(adding)
        residual = slices_before(
            m, epilogue.residual, "residuals", stages=stages, forward=not config.fused
        )
        behind = adding | pairs_r
        distribute(m, second.o, [(behind, residual), (~behind, fronts.r)])
        sums = self._sliced(m, accumulators.o, opcode_r.drain)
        collect(m, config, [(opcode_r.drain, sums), (~opcode_r.drain, fronts.o)], epilogue.i)
        if config.fused:
            copy = self._intake(m, accumulators, walks, params, fronts, flag_r, flag.drain, start)
            if config.beat_lanes > config.vector.lanes:
                m.d.comb += accumulators.softmax.eq(opcode_r.softmax)
            memories.append(copy)
        self._fill(m, fill, params, reader, opcode, start)
        m.d.comb += [
            params.walk.eq(self._registered(m, walks.params)),
            params.start.eq(start & ~fills),
            epilogue.o_walk.eq(self._registered(m, walks.o)),
        ]
        self._epilogue(m, epilogue, flag_r, overlap)
        awaited = Const(0)
        if config.row_factors:
            m.d.comb += [
                params.factors.eq(opcode_r.drain & flag_r.factors),
                params.by_tile.eq(flag_r.by_tile),
            ]
            awaited = self._factors(m, params, fronts, decoder, start, opcode)
        if config.vector.norm:
            begin = start & flag.write_sum
            self._sums(m, fronts, self._registered(m, walks.s), begin, epilogue.done, written)
        else:
            m.d.comb += written.eq(epilogue.done)

        owing = [epilogue, *memories, *([fronts] if config.softmax else [])]
        self._start(m, start, overlap, awaited)
        m.d.comb += [
            overlap.i.eq(command),
            epilogue.start.eq(start & ~fills),
            overlap.read.eq(accumulators.asked),
            overlap.reading.eq(second.walking),
            overlap.owes.eq(Cat(unit.owes for unit in owing).any()),
            overlap.written.eq(written),
            self.status.done.eq((self.i.valid | overlap.behind) & Mux(filling, fill.done, written)),
        ]
        self._status(m, overlap)
        if config.control.trace:
            self._trace(m)
        gather(m, self, errors_of([*memories, fronts, epilogue]))

    def _registered(self, m, operand):
        """Return an operand of a command; with ``registered`` from a register.

        With ``fused``, used in machines that fill a device, each walk has separate registers for
        its sizes. Its walker can then be placed near the unit that uses its addresses.
        """
        if not isinstance(operand, data.View):
            return delay(m, operand, self.config.stages)
        for _ in range(self.config.stages):
            early, late = operand, Signal(operand.shape())
            for name in early.shape().members:
                kept = KEPT if self.config.fused and name in ("m", "n", "tile") else {}
                register = Signal.like(early[name], name=name, reset_less=True, attrs=dict(kept))
                m.d.sync += register.eq(early[name])
                m.d.comb += late[name].eq(register)
            operand = late
        return operand

    def _sliced(self, m, sums, drains):
        """Return accumulator beats for the back end, from a register if that costs no time.

        That is the case with ``registered`` and ``row_factors``, when words are one cycle later
        anyway.
        """
        for _ in range(sums_stages(self.config)):
            m.submodules.behind = behind = RegisterSlice(sums.p.shape())
            m.d.comb += [behind.i.p.eq(sums.p), behind.i.valid.eq(sums.valid & drains)]
            with m.If(drains):
                m.d.comb += sums.ready.eq(behind.i.ready)
            sums = behind.o
        return sums

    def _factors(self, m, params, fronts, decoder, start, opcode):
        """Store the factors of rows; return whether the next command waits for one to arrive.

        After a NORM any command waits until all are stored; after a SOFTMAX only a NORM and
        commands that multiply by factors do.
        """
        m.submodules.factors = factors = KeptFactors(
            rows=self.config.row_factors,
            norm=self.config.vector.norm,
            softmax=self.config.softmax is not None,
        )
        m.d.comb += [
            factors.command.eq(self.i.p),
            factors.norm.eq(start & opcode.norm),
            factors.softmax.eq(start & opcode.softmax),
            params.factor.eq(self._registered(m, factors.first)),
        ]
        connect(m, factors.o, params.kept)
        for name in factors.flows:
            connect(m, getattr(fronts, name), getattr(factors, name))
        # With ``row_factors``, a later DRAIN multiplies the rows of SOFTMAX and NORM.
        takes = decoder.flag.factors & ~decoder.opcode.softmax
        return factors.norms | factors.softmaxes & takes

    def _start(self, m, start, overlap, awaited):
        """Start a command, with ``registered`` one cycle later, unless factors are ``awaited``."""
        begun, waiting, starts = Signal(), Signal(), Signal()
        m.d.sync += begun.eq((starts | begun) & ~self.i.ready)
        m.d.comb += start.eq(delay(m, starts, self.config.stages, reset=True))
        m.d.comb += [
            waiting.eq(self.i.valid & ~begun & ~awaited & (~overlap.behind | overlap.follows)),
            starts.eq(waiting),
        ]

    def _intake(self, m, accumulators, walks, params, fronts, flag, drains, start):
        """Connect accumulators to the front ends if ``drain`` is set; return their parameters.

        With ``registered`` these are written one cycle after the others.
        """
        m.submodules.intake = intake = Intake(self.config)
        copy = ParamMemory(self.config, self.config.pre_depth, marked=True)
        m.submodules.pre_params = copy
        late = self.config.stages
        m.d.comb += [
            *(
                getattr(copy, name).eq(delay(m, getattr(params, name), late))
                for name in ("write_addr", "write_line", "write_data")
            ),
            copy.write_en.eq(delay(m, params.write_en, late, reset=True)),
            copy.walk.eq(self._registered(m, walks.pre)),
            copy.start.eq(start & drains),
            accumulators.by_row.eq(drains),
            intake.i.p.eq(accumulators.o.p),
        ]
        connect(m, copy.o, intake.words)
        connect(m, intake.o, fronts.drained)
        addr, stride = self._registered(m, self.i.p.i_addr), self._registered(m, self.i.p.i_stride)
        with m.If(drains):
            m.d.comb += [accumulators.acc_addr.eq(addr), accumulators.acc_stride.eq(stride)]
        with m.If(flag.drain):
            m.d.comb += [
                intake.i.valid.eq(accumulators.o.valid),
                accumulators.o.ready.eq(intake.i.ready),
            ]
        return copy

    def _fill(self, m, fill, params, reader, opcode, start):
        """Connect PARAMS and TABLE to their memories.

        With ``registered`` parameters are written one cycle later, because the next command begins
        to read them at least two cycles later.
        """
        command, late = self.i.p, self.config.stages
        m.d.comb += [
            fill.start.eq(start),
            fill.params.eq(opcode.params),
            fill.table.eq(opcode.table),
            fill.addr.eq(Mux(opcode.params, command.params, command.table)),
            params.write_en.eq(delay(m, fill.param_en, late, reset=True)),
            params.write_addr.eq(delay(m, fill.param_addr, late)),
            params.write_line.eq(delay(m, fill.param_line, late)),
            params.write_data.eq(delay(m, reader.o.p.data.as_value(), late)),
        ]

    def _epilogue(self, m, epilogue, flag, overlap):
        """Connect the back end to the command."""
        m.d.comb += assign(
            epilogue,
            zero=overlap.o.o_zero,
            wide=flag.wide_out,
            relu=flag.relu,
            look_up=flag.table,
            slot=overlap.o.table,
            polynomial=flag.polynomial,
            rotate=flag.rotate,
            times=flag.times,
            r_zero=overlap.o.table,
            argmax=flag.argmax,
            column=overlap.o.table,
        )
        if self.config.vector.argmax:
            m.d.comb += self.largest.eq(epilogue.largest)

    def _sums(self, m, fronts, walk, start, done, written):
        """Write a normalization's sums back; they may be late if their bank is busy."""
        m.submodules.sums = sums = SumWriter(
            self.config.access,
            self.config.vector.lanes,
            stages=self.config.stages,
            forward=not self.config.fused,
        )
        connect(m, fronts.o_sum, sums.i)
        connect(m, sums.write, flipped(self.s))
        ended = Signal()
        m.d.comb += [
            sums.walk.eq(walk),
            sums.start.eq(start),
            written.eq((done | ended) & ~sums.busy),
        ]
        m.d.sync += ended.eq((done | ended) & ~written)

    def _status(self, m, overlap):
        """Report the engine's state; a command is accepted when it is done, or has been read."""
        requests = [port.request for port in (self.v, self.r, self.drain, self.o)]
        if self.config.vector.norm:
            requests.append(self.s.request)
        m.d.comb += [
            self.i.ready.eq((self.status.done & ~overlap.behind) | overlap.early),
            self.status.push.eq(overlap.o.push),
            self.status.busy.eq(self.i.valid | overlap.behind),
            self.status.stall.eq(Cat(request.valid & ~request.ready for request in requests).any()),
        ]

    def _trace(self, m):
        """Report the accepted writes."""
        m.d.comb += self.trace.retire.eq(self.status.done)
        for name in ("o", "s") if self.config.vector.norm else ("o",):
            request = getattr(self, name).request
            m.d.comb += [
                getattr(self.trace, f"{name}_valid").eq(request.valid & request.ready),
                getattr(self.trace, f"{name}_write").eq(request.p),
            ]
