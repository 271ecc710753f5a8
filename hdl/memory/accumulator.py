"""The accumulator memory, which adds up the array's sums until they are drained."""

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from celosia.arch.errors import InputError
from celosia.arch.latency import HARDWARE_WIDTH
from celosia.arch.records import Accumulators
from celosia.hdl.arithmetic.multiplier import multiply
from celosia.hdl.component import Component
from celosia.hdl.memory.protected import error_port, gather
from celosia.hdl.memory.sums import SUMS
from celosia.hdl.ports import AccumulatePort, DrainPort
from celosia.hdl.stream.pipeline import delay

ACC_SETTLE = 3
"""Cycles from an accepted drain request until the row is zero for accumulation and drain."""


class AccumulatorMemory(Component):
    """A memory of ``acc_depth`` rows of ``cols`` accumulators of ``acc_width`` bits, with adders.

    - ``accumulate``: adds to a row, modulo 2**acc_width, one row per cycle;
    - ``drain``: reads a row and sets it to zero; the row follows the accepted request by
      ``acc_latency`` cycles. A request waits while ``hold`` is 1, or while a row with the same
      lowest address bit is accumulated;
    - ``scrub``: 1 sets the row at ``scrub_addr`` to zero, in a cycle without other requests.

    A row is undefined until its first scrub or drain. A row must not be drained in the
    ``acc_settle`` cycles after its accumulation, or accessed in the 3 cycles after its drain.
    Raises :class:`InputError` if ``cols`` is not positive.
    """

    accumulate: wiring.PureInterface
    drain: wiring.PureInterface

    def __init__(
        self,
        accumulators: Accumulators,
        cols: int,
        *,
        stages: int = 0,
        level: str = "none",
        sleep: bool = False,
        scaled: bool = False,
        throttle: bool = False,
    ):
        if cols < 1:
            raise InputError(f"Accumulator memory cols must be a positive integer, not {cols!r}")
        self._depth = -(-accumulators.depth // 2)
        self._addr_width = accumulators.addr_width
        self._layout = data.ArrayLayout(signed(accumulators.width), cols)
        kind = SUMS[stages + (stages and level == "correct")]
        self._sums = kind(self._layout, level, sleep=sleep)
        super().__init__(
            {
                "accumulate": In(AccumulatePort(accumulators, cols, scaled=scaled)),
                "drain": In(DrainPort(accumulators, cols)),
                "scrub": In(1),
                "scrub_addr": In(accumulators.addr_width),
                **error_port(level),
                **({"hold": In(1)} if throttle else {}),
            }
        )

    def circuit(self, m):
        sums = self._sums
        banks = [sums.bank(self._depth) for _ in range(2)]
        for parity, bank in enumerate(banks):
            m.submodules[f"bank_{parity}"] = bank
        filled = Array(bank.filled for bank in banks)
        adding, draining = self.accumulate, self.drain.request

        # An accumulated row has priority; the other bank is free for the drain.
        taken = adding.valid & (adding.addr[0] == draining.payload[0])
        m.d.comb += draining.ready.eq(~(taken | self.hold if self.throttle else taken))
        for parity, bank in enumerate(banks):
            drains = draining.valid & (draining.payload[0] == parity)
            m.d.comb += bank.read_en.eq(sums.enable(drains))
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

        # With sleep, registers without a summand hold.
        with m.If(sums.enable(adding.valid)):
            m.d.sync += addend_1.eq(adding.data)
        with m.If(sums.enable(add_1)):
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
        for _ in range(sums.write_delay):
            add, add_addr = delay(m, add, 1, reset=True), delay(m, add_addr, 1)
            before.append(delay(m, add & (add_addr == adding.addr), 1, reset=True))
        repeats = delay(m, after_1, 1, reset=True)
        holds = delay(m, filled[add_addr_1[0]], 1, reset=True)
        follows = delay(m, reduce(or_, before), 1, reset=True)
        adds = delay(m, add_2, sums.latency, reset=True)
        with m.If(sums.enable(adds)):
            m.d.sync += total_before.eq(total)
        which = (add_addr_1[0], clear_addr_1[0], add_1, drained_1)
        brought = add_2 & holds & ~repeats & ~follows
        row, drained, wrong = sums.read(m, banks, *which, add_2, before, total_before)
        repeats, holds, follows = (
            delay(m, bit, sums.latency, reset=True) for bit in (repeats, holds, follows)
        )
        for column, value in enumerate(base):
            early = after_1, filled[add_addr_1[0]] | reduce(or_, before)
            again, kept = sums.begin(m, (repeats, holds | follows), early)
            with m.If(again):
                m.d.comb += value.eq(total_before[column])
            with m.Elif(kept):
                m.d.comb += value.eq(row[column])
        added = self._scaled(m, addend_2) if self.scaled else addend_2
        added = [delay(m, value, sums.latency, en=sums.enable(add_2)) for value in added]
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
                bank.write_row.eq((total, total_before)[self.stages]),
            ]

        held = delay(m, filled[clear_addr_1[0]], 1, reset=True)
        if self.level != "none":
            # A row that is neither added to nor drained is read all the same.
            added_to = add_1 & ~after_1 & ~reduce(or_, before)
            used = [
                (added_to & (add_addr_1[0] == parity)) | (drained_1 & (clear_addr_1[0] == parity))
                for parity in range(2)
            ]
            used = [delay(m, uses, 1) for uses in used]
            errors = [Mux(uses, b.errors, 0) for uses, b in zip(used, banks, strict=True)]
            for uses, row_errors in zip(
                (brought, delay(m, drained_1, 1) & held), wrong, strict=False
            ):
                errors.append(Mux(delay(m, uses, 1), row_errors, 0))
            gather(m, self, errors)

        late = self.stages
        m.d.comb += [
            self.drain.valid.eq(delay(m, drained_1, 1 + late, reset=True)),
            self.drain.data.eq(delay(m, Mux(held, Value.cast(drained), 0), late)),
        ]

    def _scaled(self, m, plain):
        """Return the row to add, of two cycles before, times its scales if it has any."""
        adding, scaled = self.accumulate, delay(m, self.accumulate.scaled, 2)
        added = []
        for column, total in enumerate(adding.data):
            low = total[:HARDWARE_WIDTH].as_signed()
            product = multiply(m, f"scale_{column}", low, adding.scales[column])
            added.append(Mux(scaled, product, plain[column]))
        return added
