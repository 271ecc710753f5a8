"""The matrix engine: products of matrices in the scratchpad, added to the accumulators."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.isa import RING_SLOTS, Engine
from celosia.arch.latency import dispatch_cycles
from celosia.arch.matrix_config import MatrixConfig
from celosia.hdl.component import Component
from celosia.hdl.matrix.array import gated_width
from celosia.hdl.matrix.entry import ActivationEntry
from celosia.hdl.matrix.retirement import Retirement
from celosia.hdl.matrix.streamer import ActivationStreamer
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.hdl.matrix.tree import TreeArray
from celosia.hdl.matrix.weights import WeightFetcher
from celosia.hdl.ports import AccumulatePort, EngineStatus, ReadPort, command_layout
from celosia.hdl.stream.fields import carry, outputs
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import RegisterSlice


class MatrixEngine(Component):
    """Runs MATMUL and PRELOAD commands on a systolic array or an adder tree.

    A MATMUL of m rows by T weight tiles takes ``(T - 1) * max(m, L) + m + sram_latency +
    array.latency + acc_settle`` cycles. L is the number of lines (rows or columns) of a tile if the
    command loads its tiles, else 1. Add 1 if it loads its tiles, 1 with ``registered``, and ``L -
    1`` in an adder tree.

    - ``a``, ``b``: reads of activations and weights; ``b`` must deliver a tile without a pause;
    - ``sends``: 1 if the read of a row on ``a`` is accepted;
    - ``macs``: number of the row's products, ``sram_latency + 2`` cycles later;
    - ``gated``: number of the row's zeros, one cycle after ``macs``;
    - ``refused``: 1 if a read must wait;
    - ``filling``: 1 while tiles or rows are left to read;
    - ``working``: 1 until the last sum is added.
    """

    def __init__(self, config: MatrixConfig):
        members = {
            "i": In(stream.Signature(command_layout(Engine.MATRIX))),
            "status": Out(EngineStatus()),
            "a": Out(ReadPort(config.access)),
            "b": Out(ReadPort(config.access)),
            "accumulate": Out(
                AccumulatePort(
                    config.accumulators, config.array.cols, scaled=config.slot_scales > 0
                )
            ),
            "macs": Out(range(config.elements + 1)),
            "sends": Out(1),
            "refused": Out(1),
            "filling": Out(1),
            "working": Out(1),
        }
        super().__init__(members | outputs(gated=gated_width(config)))

    def circuit(self, m):
        config = self.config
        m.submodules.weights = weights = WeightFetcher(config)
        # The slice's two places are JOBS_AHEAD.
        m.submodules.jobs = jobs = RegisterSlice(weights.o.p.shape())
        m.submodules.streamer = streamer = ActivationStreamer(config)
        m.submodules.entry = entry = ActivationEntry(config)
        kinds = {"systolic": SystolicArray, "tree": TreeArray}
        m.submodules.array = array = kinds[config.array.kind](config)
        # The entry adds one cycle.
        m.submodules.retirement = retirement = Retirement(
            addr_width=config.acc_addr_width,
            latency=array.latency + 1,
            settle=config.acc_settle,
            dispatch=dispatch_cycles(config),
        )
        direct = Signal()
        handed, placed = weights.o, weights.placed
        if config.formats:
            # Delayed by the decoder's latency.
            m.submodules.later = later = RegisterSlice(weights.o.p.shape())
            connect(m, weights.o, later.i)
            handed, placed = later.o, ~later.o.p.tile.loads
        connect(m, flipped(self.i), weights.i)
        connect(m, weights.b, flipped(self.b))
        connect(m, streamer.a, flipped(self.a))
        connect(m, weights.o_weights, array.i_weights)
        connect(m, entry.o, array.i)
        connect(m, retirement.status, flipped(self.status))
        m.d.comb += [
            jobs.i.p.eq(handed.p),
            jobs.i.valid.eq(handed.valid & ~(direct & streamer.i.ready)),
            handed.ready.eq(jobs.i.ready),
            streamer.i.p.eq(Mux(jobs.o.valid, jobs.o.p, handed.p)),
            streamer.i.valid.eq(jobs.o.valid | direct),
            jobs.o.ready.eq(streamer.i.ready),
            weights.freed.eq(streamer.freed),
            entry.elements.eq(streamer.elements),
            entry.note.eq(streamer.note),
            retirement.offered.eq(self.i.valid),
            retirement.taken.eq(self.i.valid & self.i.ready),
            retirement.named.eq(weights.named),
            retirement.waiting.eq(
                (self.a.request.valid & ~self.a.request.ready)
                | (self.b.request.valid & ~self.b.request.ready)
            ),
            retirement.last.eq(streamer.note.last),
            retirement.push.eq(streamer.note.push),
            retirement.i_addr.eq(streamer.note.acc_addr),
            self.accumulate.valid.eq(array.o.valid),
            self.accumulate.addr.eq(retirement.acc_addr),
            self.accumulate.data.eq(array.o.payload),
            self.macs.eq(entry.macs),
            self.working.eq(retirement.working),
        ]
        m.d.comb += carry(self.accumulate, array, "scaled", "scales")
        if config.array.weight_depth > RING_SLOTS:
            # If no tile waits and no lines are in flight, a tile passes the queue.
            m.d.comb += direct.eq(handed.valid & placed & ~jobs.o.valid)
        self._account(m, handed, jobs, streamer)
        m.d.comb += carry(entry, array, "zeros") + carry(self, entry, "gated")

    def _account(self, m, tiles, jobs, streamer):
        """Report the reason why no vector is sent."""
        walked = Signal(range(8))
        handed = tiles.valid & tiles.ready & tiles.p.tile.last
        # An accepted command counts one cycle later, because its path is long.
        taken = delay(m, self.i.valid & self.i.ready, 1, reset=True)
        m.d.sync += walked.eq(walked + taken - handed)
        a, b = self.a.request, self.b.request
        m.d.comb += [
            self.sends.eq(streamer.sends),
            # Weights are awaited if no activations are.
            self.refused.eq((a.valid & ~a.ready) | (b.valid & ~b.ready & ~jobs.o.valid)),
            self.filling.eq(taken | (walked != 0) | jobs.o.valid | ~streamer.idle),
        ]
