"""Address generators of the load and store engines, which copy rows between two memories.

A row is a sequence of adjacent bytes, in external memory and in the scratchpad. :class:`Rows`
splits a command into rows. :class:`Bursts` cuts each row into bursts of external memory.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.access import Access
from celosia.arch.isa import COUNT_WIDTH, Engine
from celosia.arch.latency import burst_words
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout
from celosia.hdl.stream.skid import skids


def word_addr_width(memory: Memory) -> int:
    """Return the width of a word address in external memory (bits)."""
    return memory.addr_width - (memory.word_bytes - 1).bit_length()


def span_layout(memory: Memory, access: Access) -> data.StructLayout:
    """Return the layout of a row of a LOAD or STORE in the scratchpad.

    The row has ``words + 1`` memory words from ``sp_addr`` on, the last of ``tail + 1`` bytes.
    ``last`` is 1 for a command's last row; ``push`` is its mask of engines that receive a token.
    ``empty`` is 1 if no data are moved.
    """
    return data.StructLayout(
        {
            "sp_addr": unsigned(access.addr_width),
            "words": range(max(1, (1 << access.addr_width) // memory.word_bytes)),
            "tail": range(memory.word_bytes),
            "empty": 1,
            "last": 1,
            "push": len(Engine),
        }
    )


def row_layout(memory: Memory, access: Access) -> data.StructLayout:
    """Return the layout of a record that describes one row of a LOAD or STORE.

    The row begins at word ``word_addr`` of external memory. ``span`` (:func:`span_layout`)
    describes the row in the scratchpad.
    """
    return data.StructLayout(
        {"word_addr": unsigned(word_addr_width(memory)), "span": span_layout(memory, access)}
    )


def piece_layout(memory: Memory) -> data.StructLayout:
    """Return the layout of a request for a burst of ``last + 1`` words of external memory.

    The burst begins at ``word_addr``. ``end`` is 1 for the last burst of a command; ``push`` is the
    mask of engines that then receive a dependency token. ``empty`` is 1 if no words are moved.
    """
    return data.StructLayout(
        {
            "word_addr": unsigned(word_addr_width(memory)),
            "last": unsigned(8),
            "empty": 1,
            "end": 1,
            "push": len(Engine),
        }
    )


class Rows(Component):
    """Generates the rows of LOAD and STORE commands, one per cycle.

    A command without rows or bytes makes one ``empty`` row. ``busy`` is 1 while a command is
    unfinished. There is one idle cycle between commands.
    """

    def __init__(self, memory: Memory, access: Access, *, stages: int):
        super().__init__(
            {
                "i": In(stream.Signature(command_layout(Engine.LOAD))),
                "o": Out(stream.Signature(row_layout(memory, access))),
                "busy": Out(1),
            }
        )

    def circuit(self, m):
        word_bytes = self.memory.word_bytes
        row = Signal.like(self.o.p, reset_less=True)
        span = row.span
        word_stride = Signal.like(row.word_addr, reset_less=True)
        sp_stride = Signal.like(span.sp_addr, reset_less=True)
        rows = Signal(COUNT_WIDTH, reset_less=True)  # rows left, including this one
        final = Signal()  # 1 for the last row, or if there is none
        advance = Signal()
        shift = (word_bytes - 1).bit_length()

        walking = Signal()
        named = stream.Signature(self.o.p.shape()).create()
        m.d.comb += [
            self.i.ready.eq(~self.busy),
            named.p.eq(row),
            named.p.span.last.eq(final),
            named.valid.eq(walking),
            advance.eq(walking & named.ready),
        ]
        _, *held = streams = skids(m, named, stages=self.stages)
        connect(m, streams[-1], flipped(self.o))
        m.d.comb += self.busy.eq(reduce(or_, [skid.valid for skid in held], walking))
        with m.If(advance):
            m.d.sync += [
                row.word_addr.eq(row.word_addr + word_stride),
                span.sp_addr.eq(span.sp_addr + sp_stride),
                rows.eq(rows - 1),
                final.eq(rows == 2),
                walking.eq(~final),
            ]
        end = Signal(len(span.sp_addr) + 1)
        some = Signal()
        m.d.comb += [
            end.eq(self.i.p.row_bytes - 1),
            some.eq((self.i.p.m != 0) & (self.i.p.row_bytes != 0)),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                row.word_addr.eq(self.i.p.dram_addr >> shift),
                span.sp_addr.eq(self.i.p.sp_addr),
                span.words.eq(end >> shift),
                span.tail.eq(end & (word_bytes - 1)),
                span.empty.eq(~some),
                span.push.eq(self.i.p.push),
                word_stride.eq(self.i.p.dram_stride >> shift),
                sp_stride.eq(self.i.p.sp_stride),
                rows.eq(self.i.p.m),
                final.eq(~some | (self.i.p.m == 1)),
                walking.eq(1),
            ]


class Bursts(Component):
    """Cuts rows into bursts of external memory, one burst per cycle.

    A burst ends at the end of its row, or before an address that is a multiple of ``burst_words``
    words. An ``empty`` row makes one ``empty`` burst. The first burst follows the accepted row by
    one cycle.
    """

    def __init__(self, memory: Memory, access: Access):
        super().__init__(
            {
                "i": In(stream.Signature(row_layout(memory, access))),
                "o": Out(stream.Signature(piece_layout(memory))),
            }
        )

    def circuit(self, m):
        row = Signal.like(self.i.p, reset_less=True)
        final = Signal()
        bits = min((burst_words(self.memory) - 1).bit_length(), len(row.word_addr))
        # The words from the next one up to the boundary are the complement of the low address.
        room = Signal(bits)
        rest = Signal.like(row.span.words)  # words after the next burst, if there is one
        m.d.comb += [
            room.eq(~row.word_addr[:bits]),
            rest.eq(row.span.words - room - 1),
            self.o.p.word_addr.eq(row.word_addr),
            self.o.p.last.eq(Mux(final, row.span.words, room)),
            self.o.p.empty.eq(row.span.empty),
            self.o.p.end.eq(row.span.last & (final | row.span.empty)),
            self.o.p.push.eq(row.span.push),
            self.i.ready.eq(~self.o.valid | (self.o.ready & (final | row.span.empty))),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                row.eq(self.i.p),
                final.eq(self.i.p.span.words <= ~self.i.p.word_addr[:bits]),
                self.o.valid.eq(self.i.valid),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += [
                row.word_addr[:bits].eq(0),
                row.word_addr[bits:].eq(row.word_addr[bits:] + 1),
                row.span.words.eq(rest),
                final.eq(rest[bits:] == 0),
            ]
