"""The zero-skip multiply-accumulate unit: a compressed matrix times a dense vector."""

from typing import Self

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from arch.config import Config
from hdl.component import Component
from hdl.sparse.sparse_lane import SparseLane, SparseShape


class SparseDispatcher(Component):
    """Sends each beat to the lane with the least left to do, of those with room for one.

    A beat without weights goes to no lane. Each beat also gives a ticket for the merger. Beats are
    taken, at most one a cycle, while the vector of their matrix is ``loaded``, in bank ``bank``;
    ``claim`` is 1 when the last of a matrix is taken. ``start`` has one bit per lane and ``job``
    goes to all; ``full`` and ``left`` come back from each.
    """

    def __init__(self, shape: SparseShape):
        self._shape = shape
        super().__init__(
            {
                "i": In(stream.Signature(shape.beat)),
                "loaded": In(1),
                "bank": In(1),
                "claim": Out(1),
                "start": Out(shape.lanes),
                "job": Out(shape.job),
                "full": In(shape.lanes),
                "left": In(data.ArrayLayout(range(shape.values + 1), shape.lanes)),
                "o_ticket": Out(stream.Signature(shape.ticket)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Choose by comparing pairs of lanes, then pairs of the chosen."""
        m = Module()
        shape = self._shape
        ticket = self.o_ticket.payload

        # A lane without room counts as one with more to do than any other.
        entrants: list[tuple[Value, Value]] = [
            (Cat(self.left[lane], self.full[lane]), Const(lane, range(shape.lanes)))
            for lane in range(shape.lanes)
        ]
        while len(entrants) > 1:
            pairs = zip(entrants[0::2], entrants[1::2], strict=False)
            winners = [_smaller(m, first, second) for first, second in pairs]
            entrants = winners + entrants[2 * len(winners) :]
        key, lane = entrants[0]

        empty = self.i.payload.count == 0
        offered = self.i.valid & self.loaded & (empty | ~key[-1])
        taken = self.o_ticket.valid & self.o_ticket.ready
        m.d.comb += [
            self.o_ticket.valid.eq(offered),
            self.i.ready.eq(taken),
            self.start.eq((taken & ~empty) << lane),
            self.claim.eq(taken & self.i.payload.matrix_last),
            self.job.bank.eq(self.bank),
            *(
                self.job[name].eq(self.i.payload[name])
                for name, _ in self.job.shape()
                if name != "bank"
            ),
            ticket.row_last.eq(self.i.payload.row_last),
            ticket.matrix_last.eq(self.i.payload.matrix_last),
            ticket.empty.eq(empty),
            ticket.lane.eq(lane),
        ]
        return m


def _smaller(
    m: Module, first: tuple[Value, Value], second: tuple[Value, Value]
) -> tuple[Value, Value]:
    """Return the (key, lane) with the smaller key, ``first`` where they are equal."""
    key, lane = Signal.like(first[0], name="key"), Signal.like(first[1], name="lane")
    later = second[0] < first[0]
    m.d.comb += [key.eq(Mux(later, second[0], first[0])), lane.eq(Mux(later, second[1], first[1]))]
    return key, lane


class SparseMerger(Component):
    """Adds the beats' sums, one beat per cycle in the order of the tickets, to the rows' sums.

    ``done`` is 1 for one cycle when the last beat of a matrix is merged.
    """

    def __init__(self, shape: SparseShape):
        self._shape = shape
        super().__init__(
            {
                "i_ticket": In(stream.Signature(shape.ticket)),
                "i": In(stream.Signature(shape.partial)).array(shape.lanes),
                "o": Out(stream.Signature(signed(shape.acc_width))),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Wait for the lane of the oldest beat; the younger ones keep in their lanes."""
        m = Module()
        ticket = self.i_ticket.payload
        partial = Array(lane.payload for lane in self.i)[ticket.lane]
        present = Array(lane.valid for lane in self.i)[ticket.lane]
        total = Signal(signed(self._shape.acc_width))
        after = Signal.like(total)

        room = ~self.o.valid | self.o.ready | ~ticket.row_last
        taken = self.i_ticket.valid & (ticket.empty | present) & room
        m.d.comb += [
            after.eq(total + Mux(ticket.empty, 0, partial)),
            self.i_ticket.ready.eq(taken),
            self.done.eq(taken & ticket.matrix_last),
        ]
        for index, lane in enumerate(self.i):
            m.d.comb += lane.ready.eq(taken & ~ticket.empty & (ticket.lane == index))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(taken):
            m.d.sync += total.eq(Mux(ticket.row_last, 0, after))
            with m.If(ticket.row_last):
                m.d.sync += [self.o.payload.eq(after), self.o.valid.eq(1)]
        return m


class SparseLoader(Component):
    """Writes vectors alternately to the two banks of the activation memories.

    ``loaded`` is 1 while the vector of the next beat is there, in bank ``bank``. ``claim`` tells
    that the last beat of a matrix was taken, ``done`` that it was merged, so that the vector's
    bank is free again.
    """

    def __init__(self, shape: SparseShape):
        super().__init__(
            {
                "i": In(stream.Signature(shape.vector)),
                "loaded": Out(1),
                "bank": Out(1),
                "claim": In(1),
                "done": In(1),
                "x_en": Out(1),
                "x_addr": Out(shape.word_bits + 1),
                "x_data": Out(shape.word),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count words up to the last, and vectors modulo 4: written, claimed and done with."""
        m = Module()
        word = Signal(len(self.x_addr) - 1)
        written, claimed, finished = Signal(2), Signal(2), Signal(2)
        taken = self.i.valid & self.i.ready
        m.d.comb += [
            self.i.ready.eq((written ^ finished) != 2),
            self.loaded.eq(written != claimed),
            self.bank.eq(claimed),
            self.x_en.eq(taken),
            self.x_addr.eq(Cat(word, written[0])),
            self.x_data.eq(self.i.payload.values),
        ]
        with m.If(taken):
            m.d.sync += word.eq(Mux(self.i.payload.last, 0, word + 1))
        m.d.sync += [
            written.eq(written + (taken & self.i.payload.last)),
            claimed.eq(claimed + self.claim),
            finished.eq(finished + self.done),
        ]
        return m


class SparseMac(Component):
    """Multiplies a compressed matrix with a vector: one nonzero product per lane and cycle.

    ``y[n] = sum over k of w[n][k] * x[k]``, exact; ``w`` and ``x`` are signed integers of
    ``operand_width`` bits (no zero points), ``y`` is of ``acc_width`` bits and cannot overflow.

    Inputs: ``i_vector`` takes ``x`` in beats of ``load`` elements, ``last`` at the last of a vector
    of at most ``k_max``; elements beyond its end are not used. ``i`` takes the nonzero weights of
    ``w`` in beats, row by row from the left. A beat has the ``count`` nonzero weights of the
    ``window`` columns from ``base`` on: ``bitmap`` has ``count`` bits set, bit ``i`` for column
    ``base + i``, and ``values`` holds the weights packed, the lowest column first, at most
    ``values`` of them. ``row_last`` marks the last beat of a row, ``matrix_last`` in addition the
    last beat of a matrix. A row without weights is one beat with ``count`` 0.
    Output: ``o`` gives one sum per row, in order.

    Each vector serves one matrix. The activation memory has two banks, so that one vector is
    loaded while the one before is used; a matrix waits for its vector and a vector for a free
    bank, nothing else has to be watched. A beat that breaks the rules above gives wrong sums,
    but never stops the unit.

    Each beat goes to the lane with the least left to do, whatever its row; the lanes' sums are
    merged in the beats' order. So one long row among short ones occupies all lanes.

    Throughput: one beat per cycle in, one nonzero product per lane and cycle, one row per cycle
    out, whichever limits; ``sim.sparse.count_cycles`` is the exact schedule. The input never
    limits where beats have ``lanes`` weights on average. Those of a dense row have
    ``values = 2 * lanes``, and no less than half of that together with the row's remainder. Those
    of random weights have one at their base and the window's density times ``window - 1`` more:
    enough up to 93 % of zeros with ``window = 16 * lanes``. Beyond that a cycle still passes
    ``window`` columns or a whole row, at least 16 times what it does of a dense matrix;
    ``window = k_max`` lifts this limit too, and leaves that of one row per cycle. The lanes idle
    at a matrix's end for ``2 * values`` cycles at most.

    Latency from a beat to its row's sum on ``o`` is ``count + LATENCY + 1`` cycles in an idle unit.

    Parameters: ``lanes``; ``k_max``, the longest vector (elements); ``operand_width``, from 2 to
    8, and ``acc_width`` (bits); ``window`` (columns, by default ``16 * lanes``, at most
    ``k_max``); ``values`` per beat (weights, by default ``2 * lanes``, at most ``window``);
    ``load``, the elements of a vector's beat (a power of two, by default the first from ``lanes``
    up).

    Raises :class:`InputTypeError` where a parameter is no integer, and :class:`InputError` where
    it is out of its range or ``acc_width`` could overflow.

    Bitmaps with packed values are the format of SparTen (Gondimalla and others, 2019); windows
    that start at any column keep empty stretches out of the stream.
    """

    i_vector: stream.Interface
    i: stream.Interface
    o: stream.Interface

    def __init__(
        self,
        *,
        lanes: int,
        k_max: int,
        operand_width: int = 8,
        acc_width: int = 32,
        window: int | None = None,
        values: int | None = None,
        load: int | None = None,
    ):
        self.parameters = SparseShape(
            lanes=lanes,
            k_max=k_max,
            operand_width=operand_width,
            acc_width=acc_width,
            window=window,
            values=values,
            load=load,
        )
        super().__init__(
            {
                "i_vector": In(stream.Signature(self.parameters.vector)),
                "i": In(stream.Signature(self.parameters.beat)),
                "o": Out(stream.Signature(signed(acc_width))),
            }
        )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return a configuration's unit: its lanes, and vectors that its scratchpad can hold."""
        return cls(**SparseShape.from_config(config).arguments)

    def elaborate(self, platform: object) -> Module:
        """Place and connect the parts."""
        m = Module()
        shape = self.parameters
        m.submodules.loader = loader = SparseLoader(shape)
        m.submodules.dispatcher = dispatcher = SparseDispatcher(shape)
        m.submodules.merger = merger = SparseMerger(shape)
        m.submodules.tickets = tickets = SyncFIFO(width=shape.ticket.size, depth=shape.depth)
        wiring.connect(m, wiring.flipped(self.i_vector), loader.i)
        wiring.connect(m, wiring.flipped(self.i), dispatcher.i)
        wiring.connect(m, merger.o, wiring.flipped(self.o))
        m.d.comb += [
            dispatcher.loaded.eq(loader.loaded),
            dispatcher.bank.eq(loader.bank),
            loader.claim.eq(dispatcher.claim),
            loader.done.eq(merger.done),
            tickets.w_data.eq(dispatcher.o_ticket.payload),
            tickets.w_en.eq(dispatcher.o_ticket.valid),
            dispatcher.o_ticket.ready.eq(tickets.w_rdy),
            merger.i_ticket.payload.eq(tickets.r_data),
            merger.i_ticket.valid.eq(tickets.r_rdy),
            tickets.r_en.eq(merger.i_ticket.ready),
        ]
        for index in range(shape.lanes):
            m.submodules[f"lane_{index}"] = lane = SparseLane(shape)
            wiring.connect(m, lane.o, merger.i[index])
            m.d.comb += [
                lane.start.eq(dispatcher.start[index]),
                lane.job.eq(dispatcher.job),
                dispatcher.full[index].eq(lane.full),
                dispatcher.left[index].eq(lane.left),
                lane.x_en.eq(loader.x_en),
                lane.x_addr.eq(loader.x_addr),
                lane.x_data.eq(loader.x_data),
            ]
        return m
