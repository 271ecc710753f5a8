"""The matrix engine: products of scratchpad matrices, added to the accumulators."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.config import Config
from celosia.arch.isa import RING_SLOTS, Engine
from celosia.hdl.component import Component
from celosia.hdl.matrix.entry import ActivationEntry
from celosia.hdl.matrix.retirement import Retirement
from celosia.hdl.matrix.streamer import ActivationStreamer
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.hdl.matrix.tree import TreeArray
from celosia.hdl.matrix.weights import WeightFetcher
from celosia.hdl.ports import AccumulatePort, EngineStatus, ReadPort, command_layout
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import RegisterSlice


class MatrixEngine(Component):
    """Runs MATMUL and PRELOAD on the array that the configuration's field ``array`` names.

    Weights come in up to one tile ahead of the activations.

    A tile takes ``m`` cycles if ``a`` answers at once and its weights are there by then: they take
    as many cycles as it has rows, transposed ``cols``, while the tile before computes. So a tile
    takes the larger of both, between commands too, and with ``m`` at least that number there is no
    gap. Resident weights take none. ``b`` must take a tile's lines without a wait from its first.

    Where weights have several parts (``pass_width``), m counts as often.

    PRELOAD takes a cycle for each line that it writes: all of a tile, with ``append`` those that it
    has. Its lines are read while products of other slots run, which it delays by a cycle for each
    of its tiles; a tile waits for those of its own slot, and line r of it r cycles more.

    From its first request to its last sum in the accumulators, a product of T tiles whose lines
    are L takes ``(T - 1) * max(m, L) + m + array.latency + sram_latency + acc_settle + 1`` cycles,
    with a tree L - 1 more. Of resident weights L is 1, and it is a cycle less. With ``registered``
    it is one more. ``working`` is 1 in these. The first request comes a cycle after a command is
    taken, with ``registered`` two.

    ``status.done`` comes when a drain that is asked for ``dispatch_cycles`` later (a function of
    ``celosia.hdl.matrix.retirement``), as one that waits for the token is, sees every sum of the
    command. ``status.stall`` is 1 while a scratchpad port waits. Each by its amount of a cycle, a
    few cycles late: ``macs`` counts useful products, ``gated`` the zero activations among those
    that took part. ``sends`` is 1 in each cycle in which a vector sets out for the array,
    ``refused`` where a scratchpad port keeps the next one waiting, and ``filling`` while there are
    commands whose vectors are not all sent.
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
            "sends": Out(1),
            "refused": Out(1),
            "filling": Out(1),
            "working": Out(1),
        }
        if config.array.operand_gating:
            members["gated"] = Out(range(config.array.rows + 1))
        super().__init__(members)

    def elaborate(self, _platform):
        m = Module()
        config = self.config
        m.submodules.weights = weights = WeightFetcher(config)
        # Its two places are JOBS_AHEAD.
        m.submodules.jobs = jobs = RegisterSlice(weights.o.p.shape())
        m.submodules.streamer = streamer = ActivationStreamer(config)
        m.submodules.entry = entry = ActivationEntry(config)
        kinds = {"systolic": SystolicArray, "tree": TreeArray}
        m.submodules.array = array = kinds[config.array.kind](config)
        # The entry takes a cycle.
        m.submodules.retirement = retirement = Retirement(config, array.latency + 1)
        direct = Signal()
        handed, placed = weights.o, weights.placed
        if config.formats:
            # As much later as the decoder makes weights.
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
        if config.slot_scales:
            m.d.comb += [
                self.accumulate.scaled.eq(array.scaled),
                self.accumulate.scales.eq(array.scales),
            ]
        if config.array.weight_depth > RING_SLOTS:
            # Where no tile waits and no lines are in flight, one is taken past the queue.
            m.d.comb += direct.eq(handed.valid & placed & ~jobs.o.valid)
        self._account(m, handed, jobs, streamer)
        if config.array.operand_gating:
            m.d.comb += [entry.zeros.eq(array.zeros), self.gated.eq(entry.gated)]
        return m

    def _account(self, m, tiles, jobs, streamer):
        """Tell what keeps vectors from setting out."""
        walked = Signal(range(8))
        handed = tiles.valid & tiles.ready & tiles.p.tile.last
        # What was taken counts a cycle later, as much stands before it.
        taken = delay(m, self.i.valid & self.i.ready, 1, reset=True)
        m.d.sync += walked.eq(walked + taken - handed)
        a, b = self.a.request, self.b.request
        m.d.comb += [
            self.sends.eq(streamer.sends),
            # Weights are waited for where no activations are.
            self.refused.eq((a.valid & ~a.ready) | (b.valid & ~b.ready & ~jobs.o.valid)),
            self.filling.eq(taken | (walked != 0) | jobs.o.valid | ~streamer.idle),
        ]
