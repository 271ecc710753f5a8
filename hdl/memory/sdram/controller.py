"""A controller of SDR SDRAM chips that transfers one column (word of the chip) per cycle.

While columns of one row are transferred, it opens the row of the next access.
"""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from celosia.arch.errors import InputError
from celosia.arch.records import Memory
from celosia.arch.sdram import SdramChip
from celosia.hdl.component import Component
from celosia.hdl.memory.chips import check_holds
from celosia.hdl.memory.sdram.banks import Banks
from celosia.hdl.memory.sdram.pages import Pieces
from celosia.hdl.memory.sdram.pins import PRECHARGE_ALL, Command, SdramPins
from celosia.hdl.memory.sdram.upkeep import Upkeep
from celosia.hdl.memory.words import WordCollector, WordSplitter
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort
from celosia.hdl.stream.pipeline import delay

READ_AHEAD = 32
"""Most words that are requested from the chip, in flight, or waiting to be consumed."""


class SdramController(Component):
    """The memory side of the external memory port, on an SDR SDRAM chip.

    - ``clock``: frequency of ``sync`` and of the chip (Hz).
    - Throughput: one column (word of the chip) per cycle. A write begins at least ``cas + 2``
      cycles after a READ.
    - ``written``: 1 in the cycle that sends the last column of a write burst to the chip.
    - ``ready``: 1 after the chip's start-up. While it is 0, no word is transferred.

    Raises :class:`InputError` if a memory word is narrower than a column, the memory exceeds the
    chip, or the chip does not support ``clock``.
    """

    def __init__(self, memory: Memory, chip: SdramChip, clock: float):
        if memory.width % chip.data_width:
            raise InputError(
                f"mem_width must be at least {chip.data_width}, the width of {chip.name}, not "
                f"{memory.width}"
            )
        check_holds(chip, memory)
        self.timing = chip.at(clock)
        super().__init__(
            {
                "read": In(MemoryReadPort(memory)),
                "write": In(MemoryWritePort(memory)),
                "ready": Out(1),
                "pins": Out(SdramPins(chip)),
            }
        )

    def circuit(self, m):
        m.submodules.pieces = pieces = Pieces(self.memory, self.chip)
        m.submodules.banks = banks = Banks(self.chip, self.timing)
        m.submodules.upkeep = upkeep = Upkeep(self.timing)
        connect(m, flipped(self.read.request), pieces.read)
        connect(m, flipped(self.write.request), pieces.write)
        coming = pieces.o

        # The current piece: its row is open.
        now = Signal(coming.p.shape())
        active, moves, ends, begins = Signal(), Signal(), Signal(), Signal()
        there = Signal()  # the next piece's row may be accessed
        m.d.comb += [
            ends.eq(moves & (now.piece.last == 0)),
            begins.eq((~active | ends) & there & ~upkeep.wanted),
            coming.ready.eq(begins),
            self.write.written.eq(ends & now.writes & now.piece.final),
        ]
        with m.If(begins):
            m.d.sync += [now.eq(coming.p), active.eq(1)]
        with m.Elif(moves):
            m.d.sync += [
                now.piece.col.eq(now.piece.col + 1),
                now.piece.last.eq(now.piece.last - 1),
                active.eq(~ends),
            ]

        # The next piece's row is closed and opened during the columns of this one.
        # So is this piece's row, if a refresh has closed it.
        suspended, prepares = Signal(), Signal()
        bank = Mux(suspended, now.piece.bank, coming.p.piece.bank)
        row = Mux(suspended, now.piece.row, coming.p.piece.row)
        same_bank = active & (now.piece.bank == coming.p.piece.bank)
        opens, closes, reopened = Signal(), Signal(), Signal()
        commands = opens | closes
        m.d.sync += [
            there.eq(coming.valid & banks.accessible & ~suspended & ~begins),
            reopened.eq(banks.accessible & suspended),
            opens.eq(prepares & banks.may_activate),
            closes.eq(prepares & banks.may_precharge & ~same_bank),
            banks.target.eq(bank),
            banks.opened.eq(row),
        ]
        m.d.comb += [
            prepares.eq((suspended | coming.valid) & ~upkeep.wanted & ~upkeep.working & ~commands),
            banks.bank.eq(bank),
            banks.row.eq(row),
            banks.written.eq(now.piece.bank),
            banks.activate.eq(opens),
            banks.precharge.eq(closes),
            banks.precharge_all.eq(upkeep.command == Command.PRECHARGE),
            upkeep.quiet.eq(
                (~active | suspended | (upkeep.urgent & ~moves)) & banks.rested & ~commands
            ),
            self.ready.eq(upkeep.ready),
        ]
        with m.If(upkeep.working):
            m.d.sync += suspended.eq(active)
        with m.Elif(reopened):
            m.d.sync += suspended.eq(0)
        may = active & ~suspended & ~upkeep.working & ~commands
        column = self._columns(m, now, may)
        m.d.comb += [moves.eq(column), banks.write.eq(column & now.writes)]

        with m.If(upkeep.working):
            self._say(
                m,
                upkeep.command,
                0,
                Mux(upkeep.command == Command.MODE, self._mode(), PRECHARGE_ALL),
            )
        with m.Elif(opens):
            self._say(m, Command.ACTIVATE, banks.target, banks.opened)
        with m.Elif(closes):
            self._say(m, Command.PRECHARGE, banks.target, 0)
        with m.Elif(column):
            self._say(
                m, Mux(now.writes, Command.WRITE, Command.READ), now.piece.bank, now.piece.col
            )
        with m.Else():
            self._say(m, Command.NOTHING, 0, 0)

    def _columns(self, m, now, may):
        """Move data; return whether a column is read or written in this cycle."""
        width, cas = self.chip.data_width, self.timing.cas
        m.submodules.splitter = splitter = WordSplitter(self.memory, width)
        m.submodules.collector = collector = WordCollector(self.memory, width, READ_AHEAD)
        connect(m, flipped(self.write.data), splitter.i)
        connect(m, collector.o, flipped(self.read.data))
        # The chip drives the data pins until ``cas`` cycles after a READ; one idle cycle follows.
        quiet = Signal(range(cas + 2))
        reads, writes = Signal(), Signal()
        first = now.piece.col[: exact_log2(self.memory.width // width)] == 0
        m.d.comb += [
            reads.eq(may & ~now.writes & (collector.room | ~first)),
            writes.eq(may & now.writes & splitter.valid & (quiet == 0)),
            collector.take.eq(reads & first),
            splitter.take.eq(writes),
            collector.i_valid.eq(delay(m, reads, cas + 2, reset=True)),
            collector.i.eq(delay(m, self.pins.dq_i, 1)),
        ]
        m.d.sync += [
            quiet.eq(Mux(reads, cas + 1, Mux(quiet == 0, 0, quiet - 1))),
            self.pins.dq_o.eq(splitter.data),
            self.pins.dq_oe.eq(writes),
            self.pins.dqm.eq(Mux(writes, ~splitter.mask, 0)),
        ]
        return reads | writes

    def _mode(self) -> int:
        """Return the mode register: bursts of one column, and the CAS latency."""
        return self.timing.cas << 4

    def _say(self, m, command, bank, addr):
        """Put a command on the pins in the next cycle."""
        pins = self.pins
        m.d.sync += [
            pins.cke.eq(1),
            pins.cs_n.eq(0),
            Cat(pins.we_n, pins.cas_n, pins.ras_n).eq(command),
            pins.ba.eq(bank),
            pins.a.eq(addr),
        ]
