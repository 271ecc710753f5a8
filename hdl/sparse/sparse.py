"""The sparse unit, which adds products of activations and a sparse matrix to accumulators."""

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from celosia.arch.isa import COUNT_WIDTH, Engine
from celosia.arch.latency import LANE_LATENCY, dispatch_cycles, load_bytes
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.records import Sparse
from celosia.arch.sparse import ENTRY_WIDTH, HEADER_BEATS, RUN_WIDTH, beat_bytes
from celosia.hdl.component import Component
from celosia.hdl.ports import AccumulatePort, ReadPort, command_layout
from celosia.hdl.sparse.lane import BANKS, SparseLane, sum_layout
from celosia.hdl.stream.pipeline import delay

BEATS_AHEAD = 8
"""Largest number of beats of entries that are requested and not yet consumed."""


class SparseUnit(Component):
    """Runs SPARSE commands: multiplies rows of activations A by an encoded sparse matrix B.

    ``a`` reads the rows of A. ``b`` reads B once for each row, one beat per cycle with an entry for
    every lane. Column sums are added to the accumulators, one per cycle. If no lane waits to add a
    sum, a command takes :func:`sparse_cycles` cycles. ``i`` accepts a command while ``busy`` is 0.
    ``done`` is 1 for one cycle when a command ends; the engines in the mask ``push`` then receive a
    token. ``working`` is 1 until all sums are added. ``stall`` is 1 while a request is not
    accepted. ``sends`` is 1 while the lanes process entries; ``macs`` is the number of nonzero
    weights in these entries; ``skipped`` is the number of zeros in them.
    """

    def __init__(self, config: MatrixConfig, sparse: Sparse):
        self.lanes = sparse.lanes
        most = self.lanes << (2 * RUN_WIDTH)
        super().__init__(
            {
                "i": In(stream.Signature(command_layout(Engine.MATRIX))),
                "a": Out(ReadPort(config.access)),
                "b": Out(ReadPort(config.access)),
                "accumulate": Out(
                    AccumulatePort(
                        config.accumulators, config.array.cols, scaled=config.slot_scales > 0
                    )
                ),
                "done": Out(1),
                "push": Out(len(Engine)),
                "busy": Out(1),
                "working": Out(1),
                "stall": Out(1),
                "sends": Out(1),
                "macs": Out(range(self.lanes + 1)),
                "skipped": Out(range(most)),
            }
        )

    def circuit(self, m):
        config, lanes = self.config, self.lanes
        cmd = Signal(self.i.p.shape())
        start = Signal()
        m.d.comb += [self.i.ready.eq(~self.busy), start.eq(self.i.valid & ~self.busy)]
        with m.If(start):
            m.d.sync += [cmd.eq(self.i.p), self.busy.eq(1)]

        units = []
        for index in range(lanes):
            m.submodules[f"lane_{index}"] = lane = SparseLane(config, self.sparse)
            m.d.comb += lane.k.eq(cmd.k)
            if config.array.zero_points:
                m.d.comb += lane.zero.eq(cmd.a_zero)
            units.append(lane)

        begin = delay(m, start, 1, reset=True)
        ends = Signal()
        loaded = self._load(m, cmd, begin, ends, units)
        beats = self._fetch(m, cmd, begin)
        over = self._take(m, cmd, begin, beats, loaded, units, ends)
        self._add(m, cmd, begin, over, units, ends)
        settle = config.acc_settle - dispatch_cycles(config)
        last = Signal()
        rows = Signal(COUNT_WIDTH)
        m.d.comb += last.eq(ends & (rows == 1))
        with m.If(begin):
            m.d.sync += rows.eq(cmd.m)
        with m.Elif(ends):
            m.d.sync += rows.eq(rows - 1)
        with m.If(last):
            m.d.sync += self.busy.eq(0)
        m.d.comb += [
            self.done.eq(delay(m, last, settle, reset=True)),
            self.push.eq(delay(m, cmd.push, settle)),
            self.working.eq(self.busy | delay(m, self.busy, config.acc_settle - 1, reset=True)),
            self.stall.eq(
                (self.a.request.valid & ~self.a.request.ready)
                | (self.b.request.valid & ~self.b.request.ready)
            ),
        ]

    def _load(self, m, cmd, begin, freed, units):
        """Read rows of A into the lanes' banks in turn; return the number of unused rows there."""
        config = self.config
        load = load_bytes(config.access)
        addr, row = Signal(config.access.addr_width), Signal(config.access.addr_width)
        asked, received = (
            Signal(range(self.sparse.longest_row)),
            Signal(range(self.sparse.longest_row // load)),
        )
        rows = Signal(COUNT_WIDTH)
        spare = Signal(range(BANKS + 1))
        loaded = Signal(range(BANKS + 1))
        bank = Signal()
        request = self.a.request
        accepted = request.valid & request.ready
        ends, full = Signal(), Signal()
        m.d.comb += [
            request.valid.eq((rows != 0) & (spare != 0)),
            request.p.eq(addr),
            ends.eq(asked + load >= cmd.k),
            full.eq(self.a.valid & (((received + 1) << (load - 1).bit_length()) >= cmd.k)),
        ]
        with m.If(begin):
            m.d.sync += [
                addr.eq(cmd.a_addr),
                row.eq(cmd.a_addr),
                rows.eq(cmd.m),
                asked.eq(0),
                received.eq(0),
                spare.eq(BANKS),
                loaded.eq(0),
                bank.eq(0),
            ]
        with m.Else():
            with m.If(accepted & ends):
                m.d.sync += [
                    addr.eq(row + cmd.a_stride),
                    row.eq(row + cmd.a_stride),
                    rows.eq(rows - 1),
                    asked.eq(0),
                ]
            with m.Elif(accepted):
                m.d.sync += [addr.eq(addr + load), asked.eq(asked + load)]
            with m.If(self.a.valid):
                m.d.sync += [received.eq(Mux(full, 0, received + 1)), bank.eq(bank ^ full)]
            m.d.sync += [
                spare.eq(spare + freed - (accepted & ends)),
                loaded.eq(loaded + full - freed),
            ]
        for lane in units:
            m.d.comb += [
                lane.x_en.eq(self.a.valid),
                lane.x_bank.eq(bank),
                lane.x_addr.eq(received),
                Cat(lane.x_data).eq(Cat(self.a.data)),
            ]
        return loaded

    def _fetch(self, m, cmd, begin):
        """Read the code once for each row; return its beats, with the last of a row marked."""
        config = self.config
        size = beat_bytes(self.lanes)
        addr = Signal(config.access.addr_width)
        left, rows = Signal(COUNT_WIDTH + 1), Signal(COUNT_WIDTH)
        ahead = Signal(range(BEATS_AHEAD + 1))
        request = self.b.request
        accepted = request.valid & request.ready
        m.submodules.beats = beats = SyncFIFO(width=8 * size, depth=BEATS_AHEAD)
        m.d.comb += [
            request.valid.eq((rows != 0) & (ahead != BEATS_AHEAD)),
            request.p.eq(addr),
            beats.w_en.eq(self.b.valid),
            beats.w_data.eq(Cat(self.b.data[:size])),
        ]
        with m.If(begin):
            m.d.sync += [
                addr.eq(cmd.b_addr),
                left.eq(cmd.beats + HEADER_BEATS - 1),
                rows.eq(cmd.m),
                ahead.eq(0),
            ]
        with m.Else():
            with m.If(accepted & (left == 0)):
                m.d.sync += [
                    addr.eq(cmd.b_addr),
                    left.eq(cmd.beats + HEADER_BEATS - 1),
                    rows.eq(rows - 1),
                ]
            with m.Elif(accepted):
                m.d.sync += [addr.eq(addr + size), left.eq(left - 1)]
            m.d.sync += ahead.eq(ahead + accepted - beats.r_en)
        return beats

    def _take(self, m, cmd, begin, beats, loaded, units, ends):
        """Consume a row's beats: the header, then entries once the row is loaded, to its end."""
        header = Signal(HEADER_BEATS, init=1)
        left = Signal(COUNT_WIDTH)
        over, bank = Signal(), Signal()
        stall = Signal()
        m.d.comb += [
            stall.eq(Cat(lane.stall for lane in units).any()),
            self.sends.eq(beats.r_rdy & ~header.any() & ~over & (loaded != 0) & ~stall),
            beats.r_en.eq((beats.r_rdy & header.any()) | self.sends),
        ]
        # A row's beats end when its last sum has been added.
        with m.If(begin | ends):
            m.d.sync += [header.eq(1), over.eq(0), bank.eq(Mux(begin, 0, ~bank))]
        with m.Elif(beats.r_en & header.any()):
            m.d.sync += [header.eq(header << 1), left.eq(cmd.beats), over.eq(0)]
        with m.Elif(self.sends):
            m.d.sync += [left.eq(left - 1), over.eq(left == 1)]
        width = ENTRY_WIDTH
        for index, lane in enumerate(units):
            m.d.comb += [
                lane.field.eq(beats.r_data[index * width : (index + 1) * width]),
                lane.begin.eq(Mux(beats.r_rdy, header, 0)),
                lane.take.eq(self.sends),
                lane.bank.eq(bank),
            ]
        m.d.comb += [
            self.macs.eq(Mux(self.sends, sum(lane.product for lane in units), 0)),
            self.skipped.eq(Mux(self.sends, sum(lane.zeros for lane in units), 0)),
        ]
        # By then the last products have been added to their sums.
        return delay(m, over, LANE_LATENCY, reset=True) & over

    def _add(self, m, cmd, begin, over, units, ends):
        """Add the sums, one per cycle, including the last ones of a row; report the row's end."""
        config = self.config
        waiting = Signal(self.lanes)
        chosen = Signal(self.lanes)
        finished = Signal()
        finish = Signal()
        sums = Array(lane.o.p.as_value() for lane in units)
        number = Signal(range(self.lanes))
        m.d.comb += [
            waiting.eq(Cat(lane.o.valid for lane in units)),
            chosen.eq(waiting & ~(waiting - 1)),
            finish.eq(over & Cat(lane.idle for lane in units).all() & ~finished),
        ]
        for index in reversed(range(self.lanes)):
            with m.If(waiting[index]):
                m.d.comb += number.eq(index)
        for index, lane in enumerate(units):
            m.d.comb += [lane.o.ready.eq(chosen[index]), lane.finish.eq(finish)]
        picked = Signal(sum_layout(config))
        valid_1, valid_2 = Signal(), Signal()
        row = Signal(config.acc_addr_width)
        addr_2 = Signal(config.acc_addr_width)
        m.d.sync += [
            valid_1.eq(waiting.any()),
            picked.eq(sums[number]),
            valid_2.eq(valid_1),
            addr_2.eq(row + picked.tile * cmd.acc_stride[: config.acc_addr_width]),
        ]
        for column, total in enumerate(self.accumulate.data):
            held = Signal(config.accumulators.width, name=f"sum_{column}")
            m.d.sync += held.eq(Mux(picked.column == column, picked.sum, 0))
            m.d.comb += total.eq(held)
        m.d.comb += [
            self.accumulate.valid.eq(valid_2),
            self.accumulate.addr.eq(addr_2),
            # The lane's last sum is in flight when no lane waits any more.
            ends.eq(finished & ~waiting.any() & ~valid_1 & valid_2),
        ]
        with m.If(begin):
            m.d.sync += [row.eq(cmd.acc_addr), finished.eq(0)]
        with m.Else():
            m.d.sync += [finished.eq((finished | finish) & ~ends), row.eq(row + ends)]
