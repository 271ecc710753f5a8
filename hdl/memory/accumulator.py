"""The accumulator memory, which adds up the array's sums and drains them."""

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.config import Config
from celosia.hdl.arithmetic.multiplier import HARDWARE_WIDTH, multiply
from celosia.hdl.component import Component
from celosia.hdl.memory.protected import (
    WordDecoder,
    error_port,
    errors_found,
    gather,
    protected_ram,
)
from celosia.hdl.memory.stored_bank import WRITTEN_LATER, StoredBank
from celosia.hdl.ports import AccumulatePort, DrainPort
from celosia.hdl.stream.pipeline import KEPT, delay

ACC_SETTLE = 3
"""Cycles from an accepted drain request to the first accumulated row, or first drain request, that
finds the row cleared."""


class AccumulatorBank(Component):
    """Rows of sums, each with a bit for whether it holds a sum; one read and one write per cycle.

    ``row`` and ``filled`` are the content of ``read_addr`` in the last cycle with ``read_en``. Both
    are undefined at first; a clear writes ``filled`` only, so that no gate is between an adder and
    the memory. Both are undefined for a row that is written in the cycle of its read. ``write_row``
    arrives ``later`` cycles after ``write_stb`` and ``write_addr``; ``filled`` changes without this
    delay. With a ``level`` of protection, ``errors`` reports wrong words one cycle after they are
    read.
    """

    read_en: Signal
    read_addr: Signal
    row: data.View
    filled: Signal
    write_stb: Signal
    clear_stb: Signal
    write_addr: Signal
    write_row: data.View

    def __init__(
        self, depth: int, layout: data.ArrayLayout, level: str = "none", *, later: int = 0
    ):
        self._depth = depth
        self._later = later
        self._level = level
        self._layout = layout
        addr_width = (depth - 1).bit_length()
        super().__init__(
            {
                "read_en": In(1),
                "read_addr": In(addr_width),
                "row": Out(layout),
                "filled": Out(1),
                "write_stb": In(1),
                "clear_stb": In(1),
                "write_addr": In(addr_width),
                "write_row": In(layout),
                **error_port(level),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size, part = self._layout.size, self._layout.size // self._layout.length
        m.submodules.rows = rows = protected_ram(size, self._depth, self._level, part=part)
        m.submodules.marks = marks = protected_ram(1, self._depth, self._level)
        if self._level != "none":
            # Rows without a sum are undefined.
            filled = delay(m, self.filled, 1)
            m.d.comb += self.errors.eq(Mux(filled, rows.errors, 0) | marks.errors)
        m.d.comb += [
            rows.read_en.eq(self.read_en),
            rows.read_addr.eq(self.read_addr),
            self.row.eq(rows.read_data),
            marks.read_en.eq(self.read_en),
            marks.read_addr.eq(self.read_addr),
            self.filled.eq(marks.read_data),
            rows.write_addr.eq(delay(m, self.write_addr, self._later)),
            rows.write_data.eq(self.write_row),
            rows.write_en.eq(delay(m, self.write_stb, self._later, reset=True)),
            marks.write_addr.eq(self.write_addr),
            marks.write_data.eq(self.write_stb),
            marks.write_en.eq(self.write_stb | self.clear_stb),
        ]
        return m


class AccumulatorMemory(Component):
    """``acc_depth`` rows of ``cols`` accumulators of ``acc_width`` bits.

    In a cycle with ``scrub``, which must have no requests, the row at ``scrub_addr`` becomes zero;
    a row is undefined until it is scrubbed or drained. ``accumulate`` adds a row to the row at
    ``addr``, modulo 2**acc_width, one row per cycle, even to the same row in consecutive cycles.
    ``drain`` reads a row and clears it: the row appears ``acc_latency`` cycles after the request
    was accepted, one row per cycle.

    Rows are in two banks by the parity of their address. A drain request waits in every cycle in
    which an accumulated row has the same parity. Consecutive rows alternate, so half of the cycles
    of a running array remain for each parity. With the field ``throttle`` no drain request is
    accepted in a cycle with ``hold``. With ``registered`` a register is between the adder and the
    block RAM: a row is written one cycle later. If rows are corrected from registers
    (``acc_corrected``), registers are also between the block RAM and its decoder, and between
    decoder and adder: two cycles later.

    A drain request ``acc_settle`` cycles after the accumulation of a row, or later, reads the new
    sum. An access ``ACC_SETTLE`` cycles after an accepted drain request of a row, or later, finds
    the row zero. Earlier accesses are undefined: the engine's ``done`` and the program's tokens
    keep the order. Addresses must be below ``acc_depth``.
    """

    accumulate: wiring.PureInterface
    drain: wiring.PureInterface

    def __init__(self, config: Config):
        self._depth = -(-config.accumulators.depth // 2)
        self._addr_width = config.acc_addr_width
        self._registered = config.control.registered
        self._throttle = bool(config.throttle)
        self._sleep = config.array.sleep
        self._scales = config.slot_scales > 0
        self._level = config.protected("accumulators")
        self._corrected = config.acc_corrected
        self._written_later = (
            WRITTEN_LATER if config.acc_corrected else int(config.control.registered)
        )
        self._layout = data.ArrayLayout(signed(config.accumulators.width), config.array.cols)
        super().__init__(
            {
                "accumulate": In(AccumulatePort(config)),
                "drain": In(DrainPort(config)),
                "scrub": In(1),
                "scrub_addr": In(config.acc_addr_width),
                **error_port(self._level),
                **({"hold": In(1)} if config.throttle else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        banks = []
        for parity in range(2):
            if self._corrected:
                bank = StoredBank(self._depth, self._layout)
            else:
                later = self._written_later
                bank = AccumulatorBank(self._depth, self._layout, self._level, later=later)
            m.submodules[f"bank_{parity}"] = bank
            banks.append(bank)
        filled = Array(bank.filled for bank in banks)
        adding, draining = self.accumulate, self.drain.request

        # An accumulated row has priority; the other bank is free for the drain.
        taken = adding.valid & (adding.addr[0] == draining.payload[0])
        m.d.comb += draining.ready.eq(~(taken | self.hold if self._throttle else taken))
        for parity, bank in enumerate(banks):
            drains = draining.valid & (draining.payload[0] == parity)
            m.d.comb += bank.read_en.eq(drains if self._sleep else 1)
            with m.If(adding.valid & (adding.addr[0] == parity)):
                m.d.comb += [bank.read_en.eq(1), bank.read_addr.eq(adding.addr[1:])]
            with m.Else():
                m.d.comb += bank.read_addr.eq(draining.payload[1:])

        # Stages 1 (row read) and 2 (sum written), with the addresses that stages compare.
        add_1 = Signal()
        add_2 = Signal()
        add_addr_1 = Signal(self._addr_width, reset_less=True)
        add_addr_2 = Signal(self._addr_width, reset_less=True)
        addend_1 = Signal(self._layout, reset_less=True)
        addend_2 = Signal(self._layout, reset_less=True)
        clear_1, drained_1 = Signal(), Signal()
        clear_addr_1 = Signal(self._addr_width, reset_less=True)
        m.d.sync += [
            add_1.eq(adding.valid),
            add_addr_1.eq(adding.addr),
            add_2.eq(add_1),
            add_addr_2.eq(add_addr_1),
            drained_1.eq(draining.valid & draining.ready),
            clear_1.eq((draining.valid & draining.ready) | self.scrub),
            clear_addr_1.eq(Mux(self.scrub, self.scrub_addr, draining.payload)),
        ]

        # With sleep, rows that are not added do not shift.
        with m.If(adding.valid if self._sleep else 1):
            m.d.sync += addend_1.eq(adding.data)
        with m.If(add_1 if self._sleep else 1):
            m.d.sync += addend_2.eq(addend_1)

        # The results of the two previous rows are not in the memory yet when this row is read: one
        # is being added, the other is written in that cycle. The bit that the row held a sum
        # arrives with the row, and is used one cycle later.
        after_1 = Signal()
        after_2 = Signal()
        base = Signal(self._layout)
        total = Signal(self._layout)
        total_before = Signal(self._layout, reset_less=True)
        m.d.sync += [
            after_1.eq(add_1 & (add_addr_1 == adding.addr)),
            after_2.eq(add_2 & (add_addr_2 == adding.addr)),
        ]
        # Rows written later have more predecessors in flight.
        before = [after_2]
        add, add_addr = add_2, add_addr_2
        for _ in range(self._written_later):
            add, add_addr = delay(m, add, 1, reset=True), delay(m, add_addr, 1)
            before.append(delay(m, add & (add_addr == adding.addr), 1, reset=True))
        repeats = delay(m, after_1, 1, reset=True)
        holds = delay(m, filled[add_addr_1[0]], 1, reset=True)
        follows = delay(m, reduce(or_, before), 1, reset=True)
        adds = delay(m, add_2, int(self._corrected), reset=True)
        with m.If(adds if self._sleep else 1):
            m.d.sync += total_before.eq(total)
        which = (add_addr_1[0], clear_addr_1[0], add_1, drained_1)
        found, brought = [], add_2 & holds & ~repeats & ~follows
        if self._corrected:
            row, drained, found = self._correct(m, banks, *which, add_2, before, total_before)
            repeats, holds, follows = (
                delay(m, bit, 1, reset=True) for bit in (repeats, holds, follows)
            )
        else:
            row, drained = self._read(m, banks, *which, before, total_before)
        for column, value in enumerate(base):
            again, kept = repeats, holds | follows
            if self._registered and not self._corrected:
                # Each column has separate registers for the start value of its sum.
                again = self._near(m, after_1)
                kept = self._near(m, filled[add_addr_1[0]] | reduce(or_, before))
            with m.If(again):
                m.d.comb += value.eq(total_before[column])
            with m.Elif(kept):
                m.d.comb += value.eq(row[column])
        added = self._scaled(m, addend_2) if self._scales else addend_2
        if self._corrected:
            added = [delay(m, value, 1, en=add_2 if self._sleep else 1) for value in added]
        for column, value in enumerate(total):
            m.d.comb += value.eq(base[column] + added[column])

        # Each bank has separate registers for its write address, because it is large.
        for parity, bank in enumerate(banks):
            adds = add_1 & (add_addr_1[0] == parity)
            clears = clear_1 & (clear_addr_1[0] == parity)
            addr = Mux(adds, add_addr_1[1:], clear_addr_1[1:])
            m.d.comb += [
                bank.write_stb.eq(delay(m, adds, 1, reset=True)),
                bank.clear_stb.eq(delay(m, clears, 1, reset=True)),
                bank.write_addr.eq(delay(m, addr, 1)),
                bank.write_row.eq(total_before if self._registered else total),
            ]

        held = delay(m, filled[clear_addr_1[0]], 1, reset=True)
        if self._level != "none":
            # A row that is neither added to nor drained is read all the same.
            added_to = add_1 & ~after_1 & ~reduce(or_, before)
            used = [
                (added_to & (add_addr_1[0] == parity)) | (drained_1 & (clear_addr_1[0] == parity))
                for parity in range(2)
            ]
            used = [delay(m, uses, 1) for uses in used]
            errors = [Mux(uses, b.errors, 0) for uses, b in zip(used, banks, strict=True)]
            for uses, row_errors in zip(
                (brought, delay(m, drained_1, 1) & held), found, strict=False
            ):
                errors.append(Mux(delay(m, uses, 1), row_errors, 0))
            gather(m, self, errors)

        late = int(self._registered)
        m.d.comb += [
            self.drain.valid.eq(delay(m, drained_1, 1 + late, reset=True)),
            self.drain.data.eq(delay(m, Mux(held, Value.cast(drained), 0), late)),
        ]
        return m

    def _scaled(self, m, plain):
        """Return the row to add, of two cycles before, times its scales if it has any."""
        adding, scaled = self.accumulate, delay(m, self.accumulate.scaled, 2)
        added = []
        for column, total in enumerate(adding.data):
            low = total[:HARDWARE_WIDTH].as_signed()
            product = multiply(m, f"scale_{column}", low, adding.scales[column])
            added.append(Mux(scaled, product, plain[column]))
        return added

    def _read(self, m, banks, adds, drains, add_1, drained_1, before, total):
        """Return the row to add to and the row to drain, one cycle after the banks output them.

        ``adds`` and ``drains`` are their banks; ``add_1`` and ``drained_1`` say that there is such
        a row. ``before`` says which of the sums of two (with ``registered`` or three) requests
        before belong to the same row; ``total`` was the last of them one cycle ago. The nearest is
        added to. With ``registered`` rows are selected after a register for each bank, which block
        RAM includes.
        """
        layout = self._layout
        if not self._registered:
            rows = Array(bank.row for bank in banks)
            row = Signal(layout, reset_less=True)
            drained = Signal(layout, reset_less=True)
            with m.If(add_1 if self._sleep else 1):
                m.d.sync += row.eq(Mux(before[0], total, rows[adds]))
            with m.If(drained_1 if self._sleep else 1):
                m.d.sync += drained.eq(rows[drains])
            return row, drained
        rows = Array(data.View(layout, delay(m, bank.row.as_value(), 1)) for bank in banks)
        total = data.View(layout, delay(m, total.as_value(), 1))
        earlier = data.View(layout, delay(m, total.as_value(), 1))
        row = Signal(layout)
        for column, value in enumerate(row):
            follows, far = (self._near(m, after) for after in before)
            found = Array(bank[column] for bank in rows)[self._near(m, adds)]
            m.d.comb += value.eq(Mux(follows, total[column], Mux(far, earlier[column], found)))
        return row, rows[delay(m, drains, 1)]

    def _near(self, m, value):
        """Return a bit of the previous cycle, from a register that synthesis does not share."""
        near = Signal(attrs=dict(KEPT))
        m.d.sync += near.eq(value)
        return near

    def _correct(self, m, banks, adds, drains, add_1, drained_1, add_2, before, total_before):
        """Return the row to add to, one cycle later than :meth:`_read`, and the row to drain.

        Both are corrected from registers. ``before`` says which of the sums of two, three or four
        requests before belong to the same row; ``total_before`` was the last of them one cycle ago.
        The nearest is added to. Returns the errors of both rows too, one cycle after they are
        corrected.
        """
        stored = [bank.row.as_value() for bank in banks]
        words, errors = [], []
        for name, which, uses in (("add", adds, add_1), ("drain", drains, drained_1)):
            row = delay(m, Array(stored)[which], 1, en=uses if self._sleep else 1)
            decoders = []
            size = len(row) // self._layout.length
            for column in range(self._layout.length):
                decoder = WordDecoder(self._layout.size // self._layout.length, "correct")
                m.submodules[f"{name}_decoder_{column}"] = decoder
                m.d.comb += decoder.stored.eq(row[column * size : (column + 1) * size])
                decoders.append(decoder)
            words.append(Cat(decoder.word for decoder in decoders))
            wrong = [delay(m, decoder.found, 1) for decoder in decoders]
            errors.append(reduce(or_, (errors_found(found, "correct") for found in wrong)))
        total = total_before.as_value()
        totals = [total]
        for _ in before[1:]:
            totals.append(delay(m, totals[-1], 1))
        nearest = totals[-1]
        before = [delay(m, after, 1) for after in before]
        for after, earlier in reversed(list(zip(before[:-1], totals, strict=False))):
            nearest = Mux(after, earlier, nearest)
        word = Mux(Cat(before).any(), nearest, words[0])
        row = delay(m, word, 1, en=add_2 if self._sleep else 1)
        return data.View(self._layout, row), data.View(self._layout, words[1]), errors
