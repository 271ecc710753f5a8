"""A PSRAM controller that divides bursts into commands; it has twice the chip's clock frequency."""

from amaranth.hdl import Array, Cat, Const, Mux, Signal
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from celosia.arch.errors import InputError
from celosia.arch.psram import COMMAND, PsramChip, begin
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.memory.chips import check_holds
from celosia.hdl.memory.psram.bursts import Bursts
from celosia.hdl.memory.psram.pins import BACK, HalfCycles, PsramPins
from celosia.hdl.memory.words import WordCollector, WordSplitter
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort
from celosia.hdl.stream.pipeline import delay

READS, WRITES, REGISTERS, LINEAR = 0xA0, 0x20, 0x40, 0x20
"""First bytes of commands: a read, a write, and the bits for a register access and a linear
burst."""

_CONFIGURATION = 0x01  # the address byte that selects configuration register 0
_NORMAL = 0x8F07  # its value: no power-down, full drive strength


class PsramController(Component):
    """A controller that makes PSRAM chips with HyperBus the external memory of a machine.

    ``chip`` has one or more dies side by side, which get the same commands. A column address
    selects two bytes in each die.

    - ``clock``: frequency of ``sync`` (Hz), twice that of the chip's clock.
    - Throughput: one byte of each die per cycle. A word's lowest byte is on the first die.
    - Latency: :func:`celosia.arch.psram.begin` returns the cycles from a command to its data.
    - ``written``: 1 in the cycle that sends the last data of a write burst.
    - ``failed``: 1 for a cycle if the chip sends data without its strobe.

    Raises :class:`InputError` if the width of a memory word, the size of the memory or ``clock``
    does not suit the chip.
    """

    def __init__(self, memory: Memory, chip: PsramChip, clock: float):
        if memory.word_bytes < chip.column_bytes:
            raise InputError(
                f"mem_width must be at least {8 * chip.column_bytes}, a column of {chip.dies} "
                f"{chip.name}, not {memory.width}"
            )
        check_holds(chip, memory)
        self.timing = chip.at(clock)
        if memory.word_bytes > self.timing.columns * chip.column_bytes:
            raise InputError(
                f"mem_width must be at most {8 * self.timing.columns * chip.column_bytes}, which "
                f"{chip.name} moves under one command at {clock / 1e6:g} MHz, not "
                f"{memory.width}"
            )
        super().__init__(
            {
                "read": In(MemoryReadPort(memory)),
                "write": In(MemoryWritePort(memory)),
                "failed": Out(1),
                "pins": Out(PsramPins(chip)),
            }
        )

    def circuit(self, m):
        chip, timing, pins = self.chip, self.timing, self.pins
        m.submodules.bursts = bursts = Bursts(self.memory, chip, timing.columns)
        m.submodules.half = half = HalfCycles(chip)
        connect(m, flipped(self.read.request), bursts.read)
        connect(m, flipped(self.write.request), bursts.write)
        splitter, collector, held = self._words(m, bursts)

        # A command, from its first byte to its last data: ``odd`` is the edge of the chip's clock,
        # ``period`` its periods before the data.
        active, moves, odd, twice, awake, known = (Signal() for _ in range(6))
        period = Signal(range(begin(2 * chip.latency) // 2 + 1))
        rest = Signal(range(timing.high + 1), init=timing.high)
        writes, reads = Signal(), Signal()
        ratio = self._ratio()
        ready = Mux(bursts.writes, held > bursts.ahead >> ratio, collector.room)
        last = Mux(known, Mux(twice, 2 * chip.latency, chip.latency) + COMMAND - 2, COMMAND - 1)
        ends = Signal()
        m.d.comb += [
            writes.eq(known & bursts.writes),
            reads.eq(known & ~bursts.writes),
            ends.eq(moves & odd & (bursts.ends | ~known)),
            bursts.step.eq(moves & odd & known),
            self.write.written.eq(ends & writes & bursts.final),
        ]
        with m.If(active):
            m.d.sync += [odd.eq(~odd), rest.eq(timing.high)]
            with m.If(odd & ~moves):
                m.d.sync += [period.eq(period + 1), moves.eq(period == last)]
            with m.If(odd & (period == COMMAND - 1)):
                m.d.sync += twice.eq(half.rwds.any())
            with m.If(ends):
                m.d.sync += [active.eq(0), moves.eq(0), known.eq(1)]
        with m.Elif(rest != 0):
            m.d.sync += rest.eq(rest - 1)
        with m.Elif(awake & (~known | (bursts.busy & ready))):
            m.d.sync += [active.eq(1), period.eq(0)]
        self._wake(m, awake)

        m.d.comb += [
            splitter.take.eq(moves & writes),
            collector.take.eq(moves & reads & ~odd & (bursts.place[:ratio] == 0)),
            collector.i_valid.eq(delay(m, moves & reads, BACK + 1, reset=True)),
            collector.i.eq(half.dq),
        ]
        expected = delay(m, ~odd, BACK + 1).replicate(chip.dies)
        m.d.sync += self.failed.eq(collector.i_valid & (half.rwds != expected))

        # The pins in the next cycle; CS# stays low until the last data have arrived.
        clock = Signal()
        m.d.comb += half.clock.eq(clock)
        m.d.comb += [pins.ck.eq(half.ck), pins.ck_n.eq(half.ck_n)]
        m.d.comb += [half.dq_i.eq(pins.dq_i), half.rwds_i.eq(pins.rwds_i)]
        register = Const(_NORMAL | chip.fixed << 3 | chip.code << 4, 16)
        with m.If(~moves):
            m.d.sync += pins.dq_o.eq(
                self._command(bursts, known)[Cat(odd, period)].replicate(chip.dies)
            )
        with m.Elif(known):
            m.d.sync += pins.dq_o.eq(splitter.data)
        with m.Else():
            m.d.sync += pins.dq_o.eq(Mux(odd, register[:8], register[8:]).replicate(chip.dies))
        m.d.sync += [
            clock.eq(active & ~odd),
            pins.cs_n.eq(~(active | delay(m, active, 1, reset=True))),
            pins.dq_oe.eq(active & Mux(moves, ~reads, period < COMMAND)),
            pins.rwds_oe.eq(active & writes & (period > COMMAND)),
            pins.rwds_o.eq(Mux(moves, ~splitter.mask, 0)),
        ]

    def _words(self, m, bursts):
        """Return the splitter of written words, the collector of read words, and the words held."""
        width, ratio = 8 * self.chip.dies, self._ratio()
        words = self.timing.columns >> ratio  # of the longest piece
        m.submodules.queue = queue = SyncFIFOBuffered(
            width=self.memory.width + self.memory.word_bytes, depth=2 * words
        )
        m.submodules.splitter = splitter = WordSplitter(self.memory, width)
        m.submodules.collector = collector = WordCollector(self.memory, width, 2 * words, words)
        connect(m, collector.o, flipped(self.read.data))
        held = Signal(range(2 * words + 3))
        left = Signal()
        m.d.comb += [
            queue.w_data.eq(self.write.data.p),
            queue.w_en.eq(self.write.data.valid),
            self.write.data.ready.eq(queue.w_rdy),
            splitter.i.p.eq(queue.r_data),
            splitter.i.valid.eq(queue.r_rdy),
            queue.r_en.eq(splitter.i.ready),
            left.eq(bursts.step & bursts.writes & bursts.place[:ratio].all()),
        ]
        m.d.sync += held.eq(held + (queue.w_en & queue.w_rdy) - left)
        return splitter, collector, held

    def _ratio(self) -> int:
        """Return the base-2 logarithm of a word's number of columns."""
        return exact_log2(self.memory.word_bytes // self.chip.column_bytes)

    def _command(self, bursts, known):
        """Return the bytes of a command; all dies receive the same."""
        memory = Mux(bursts.writes, WRITES, READS)
        burst = [
            memory,
            bursts.place[19:],
            bursts.place[11:19],
            bursts.place[3:11],
            0,
            bursts.place[:3],
        ]
        register = [REGISTERS | LINEAR, 0, _CONFIGURATION, 0, 0, 0]
        return Array(
            Mux(known, stored, other)[:8] for stored, other in zip(burst, register, strict=True)
        )

    def _wake(self, m, awake):
        """Reset the chip, and wait until it accepts commands."""
        timing = self.timing
        waited = Signal(range(timing.reset + timing.init + 1))
        with m.If(~awake):
            m.d.sync += waited.eq(waited + 1)
        with m.If(waited == timing.reset):
            m.d.sync += self.pins.reset_n.eq(1)
        with m.If(waited == timing.reset + timing.init):
            m.d.sync += awake.eq(1)
        return awake
