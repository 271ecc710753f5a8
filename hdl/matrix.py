"""The matrix engine: products of scratchpad matrices, added to the accumulators."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped

from arch.config import Config
from arch.isa import Engine
from hdl.accumulator import ACC_SETTLE
from hdl.pipeline import delay
from hdl.ports import AccumulatePort, EngineStatus, MaskReadPort, ReadPort, command_layout
from hdl.streamer import ActivationStreamer
from hdl.systolic import SystolicArray
from hdl.weights import WeightFetcher

JOBS_AHEAD = 2
"""Tiles whose weights are in place or on their way while another one computes."""


class MatrixEngine(wiring.Component):
    """Runs MATMUL and PRELOAD: weights come in one tile ahead of the activations.

    A tile takes ``m`` cycles if ``a`` answers at once and its weights, which take as many cycles
    as it has rows (transposed: columns), are there by then. ``status.done`` comes when a drain
    that is asked for from then on sees every sum of the command. ``macs`` counts useful products,
    ``gated`` the zero activations among those that took part, ``skipped`` masked tiles, each by
    its amount of the cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        members = {
            "i": In(stream.Signature(command_layout(Engine.MATRIX))),
            "status": Out(EngineStatus()),
            "a": Out(ReadPort(config)),
            "b": Out(ReadPort(config)),
            "accumulate": Out(AccumulatePort(config)),
            "macs": Out(range(config.elements + 1)),
        }
        if config.operand_gating:
            members["gated"] = Out(range(config.rows + 1))
        if config.tile_skip:
            members |= {
                "a_mask": Out(MaskReadPort(config)),
                "b_mask": Out(MaskReadPort(config)),
                "skipped": Out(1),
            }
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        config = self.config
        m.submodules.weights = weights = WeightFetcher(config)
        m.submodules.streamer = streamer = ActivationStreamer(config)
        m.submodules.array = array = SystolicArray(config)
        m.submodules.jobs = jobs = SyncFIFO(width=weights.o.p.shape().size, depth=JOBS_AHEAD)
        connect(m, flipped(self.i), weights.i)
        connect(m, weights.b, flipped(self.b))
        connect(m, streamer.a, flipped(self.a))
        m.d.comb += [
            jobs.w_data.eq(weights.o.p),
            jobs.w_en.eq(weights.o.valid),
            weights.o.ready.eq(jobs.w_rdy),
            streamer.i.p.eq(jobs.r_data),
            streamer.i.valid.eq(jobs.r_rdy),
            jobs.r_en.eq(streamer.i.ready),
            weights.freed.eq(streamer.freed),
            weights.drained.eq(streamer.idle & (jobs.level == 0)),
            array.i_weights.valid.eq(weights.o_weights.valid),
            array.i_weights.payload.eq(weights.o_weights.payload),
        ]
        if config.tile_skip:
            connect(m, weights.a_mask, flipped(self.a_mask))
            connect(m, weights.b_mask, flipped(self.b_mask))
            m.d.comb += self.skipped.eq(weights.skipped)
        self._enter(m, streamer, array)
        self._leave(m, streamer, array)
        return m

    def _enter(self, m, streamer, array):
        """Subtract the zero point, and let elements past the sums' end count as zero."""
        config, note = self.config, streamer.note
        width = config.operand_width
        zeros = []
        m.d.sync += [array.i.valid.eq(note.valid), array.i.payload.slot.eq(note.slot)]
        for row in range(config.rows):
            element = streamer.elements[row][:width].as_signed()
            zero = note.zero if config.zero_points else 0
            used = note.k > row
            m.d.sync += array.i.payload.a[row].eq(Mux(used, element - zero, 0))
            zeros.append(note.valid & used & (element == zero))
        m.d.sync += self.macs.eq(Mux(note.valid, note.k * note.n, 0))
        if config.operand_gating:
            m.d.sync += self.gated.eq(sum(zeros))

    def _leave(self, m, streamer, array):
        """Add the sums to the accumulators; a command is done when its last ones are."""
        note = streamer.note
        late = array.latency + 1
        last = delay(m, note.last, late)
        m.d.comb += [
            self.accumulate.valid.eq(array.o.valid),
            self.accumulate.addr.eq(delay(m, note.acc_addr, late)),
            self.accumulate.data.eq(array.o.payload),
            self.status.done.eq(delay(m, last, ACC_SETTLE)),
            self.status.push.eq(delay(m, note.push, late + ACC_SETTLE)),
            self.status.stall.eq(
                (self.a.request.valid & ~self.a.request.ready)
                | (self.b.request.valid & ~self.b.request.ready)
            ),
        ]
        # Busy from the first word of a command to its done.
        under_way = Signal(8)
        m.d.sync += under_way.eq(under_way + (self.i.valid & self.i.ready) - self.status.done)
        m.d.comb += self.status.busy.eq(self.i.valid | (under_way != 0))
