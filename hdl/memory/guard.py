"""The guard, which counts transfers of external memory and can disconnect the core from it."""

from amaranth.hdl import Mux, Signal
from amaranth.lib.wiring import In, Out

from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.memory.load import ROWS_AHEAD
from celosia.hdl.memory.store import BURSTS_AHEAD
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort

WRITE_WORDS_WIDTH = 11
"""Width of the number of requested write words, which can exceed twice the longest burst (bits)."""


class MemoryGuard(Component):
    """Disconnects the core from external memory, so that the core can be reset during transfers.

    - ``core_read``, ``core_write``: the core's ports, combinationally connected to ``read`` and
      ``write``.
    - ``close``: 1 disconnects the core when memory has accepted all offered requests and words.
    - ``closed``: 1 if the core is disconnected and may be reset.
    - ``forget``: 1, while memory is in reset, disconnects the core at once and forgets transfers.
    - ``owed``: 1 while transfers are outstanding. For a disconnected core, the guard completes them
      without writing a byte.
    - ``waits``: bit 0 is 1 while a read waits for memory, bit 1 while a write waits.

    A reset disconnects the core at once.
    """

    def __init__(self, memory: Memory, *, bank_bytes: int):
        rows = ROWS_AHEAD + 4
        self._read_width = (rows * (bank_bytes // memory.word_bytes + 1)).bit_length() + 1
        super().__init__(
            {
                "core_read": In(MemoryReadPort(memory)),
                "core_write": In(MemoryWritePort(memory)),
                "read": Out(MemoryReadPort(memory)),
                "write": Out(MemoryWritePort(memory)),
                "close": In(1),
                "forget": In(1),
                "closed": Out(1),
                "owed": Out(1),
                "waits": Out(2),
            }
        )

    def circuit(self, m):
        read_closed, read_owed = self._read(m)
        write_closed, write_owed = self._write(m)
        m.d.comb += [
            self.closed.eq(read_closed & write_closed),
            self.owed.eq(read_owed | write_owed),
        ]

    def _stream(self, m, name, inner, outer, may=1):
        """Pass a stream on until it is shut; return whether it is, and whether a payload moves."""
        shut = Signal(name=f"{name}_shut", init=1)
        valid = Signal(name=f"{name}_valid")
        m.d.comb += [
            valid.eq(inner.valid & ~shut & may),
            outer.p.eq(inner.p),
            outer.valid.eq(valid),
            inner.ready.eq(outer.ready & ~shut & may),
        ]
        with m.If(self.forget):
            m.d.sync += shut.eq(1)
        with m.Elif(~self.close):
            m.d.sync += shut.eq(0)
        with m.Elif(~valid | outer.ready):
            m.d.sync += shut.eq(1)
        return shut, valid & outer.ready

    def _count(self, m, name, width, asked, more, less):
        """Return a count that a reset keeps; answers that no request expects do not count."""
        count = Signal(width, name=name, reset_less=True)
        expected = asked | (count != 0)
        m.d.sync += count.eq(count + Mux(asked, more, 0) - (less & expected))
        with m.If(self.forget):
            m.d.sync += count.eq(0)
        return count

    def _read(self, m):
        """Pass reading on; return whether it is cut off, and whether words are outstanding."""
        core, memory = self.core_read, self.read
        room, taken = Signal(), Signal()
        shut, asked = self._stream(m, "read_request", core.request, memory.request, room)
        m.d.comb += [
            core.data.p.eq(memory.data.p),
            core.data.valid.eq(memory.data.valid & ~shut),
            taken.eq(memory.data.valid & memory.data.ready),
        ]
        more = core.request.p.last + 1
        words = self._count(m, "words_owed", self._read_width, asked, more, taken)
        m.d.comb += [
            # Words without a request are not accepted.
            memory.data.ready.eq(Mux(shut, words != 0, core.data.ready)),
            # A program within the scratchpad never requests more words than this.
            room.eq(~words[-1]),
            self.waits[0].eq(
                ~memory.data.valid & ((memory.request.valid & ~memory.request.ready) | (words != 0))
            ),
        ]
        return shut, words != 0

    def _write(self, m):
        """Pass writing on; return whether it is cut off, and whether words or reports are owed."""
        core, memory = self.core_write, self.write
        shut, asked = self._stream(m, "write_request", core.request, memory.request)
        word_shut = Signal(init=1)
        given = Signal()
        more, bursts_width = core.request.p.last + 1, (BURSTS_AHEAD + 2).bit_length()
        words = self._count(m, "words_promised", WRITE_WORDS_WIDTH, asked, more, given)
        bursts = self._count(m, "bursts_owed", bursts_width, asked, 1, memory.written)
        m.d.comb += [
            memory.data.p.data.eq(core.data.p.data),
            memory.data.p.mask.eq(Mux(word_shut, 0, core.data.p.mask)),
            memory.data.valid.eq(Mux(word_shut, words != 0, core.data.valid)),
            core.data.ready.eq(memory.data.ready & ~word_shut),
            given.eq(memory.data.valid & memory.data.ready),
            core.written.eq(memory.written & ~shut),
            # A cycle in which memory reports a burst as written does not count as a wait.
            self.waits[1].eq(
                (memory.data.valid & ~memory.data.ready)
                | (
                    (words == 0)
                    & ~memory.written
                    & ((memory.request.valid & ~memory.request.ready) | (bursts != 0))
                )
            ),
        ]
        with m.If(self.forget):
            m.d.sync += word_shut.eq(1)
        with m.Elif(~self.close):
            m.d.sync += word_shut.eq(0)
        with m.Elif(~memory.data.valid | memory.data.ready):
            m.d.sync += word_shut.eq(1)
        return shut & word_shut, (words != 0) | (bursts != 0)
