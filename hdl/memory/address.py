"""Address generators of the load and store engines: rows, and bursts of external memory."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.config import Config
from celosia.arch.isa import COUNT_WIDTH, Engine
from celosia.hdl.component import Component
from celosia.hdl.ports import command_layout
from celosia.hdl.stream.skid import Skid

BURST_BOUNDARY = 4096
"""No burst crosses a multiple of this external address (bytes); AXI4 demands it."""


def burst_words(config: Config) -> int:
    """Return the longest burst (words)."""
    return min(256, BURST_BOUNDARY // config.mem_bytes)


def word_addr_width(config: Config) -> int:
    """Return the width of an external address in words (bits)."""
    return config.memory.addr_width - (config.mem_bytes - 1).bit_length()


def span_layout(config: Config) -> data.StructLayout:
    """Return the scratchpad's side of one row of a LOAD or STORE.

    It starts at byte ``sp_addr`` and has ``words + 1`` memory words, the last of ``tail + 1``
    bytes. ``last`` marks the end of the command and brings its ``push``; ``empty``, which comes
    only with ``last``, stands for no row at all.
    """
    return data.StructLayout(
        {
            "sp_addr": unsigned(config.sp_addr_width),
            "words": range(max(1, config.scratchpad.bytes // config.mem_bytes)),
            "tail": range(config.mem_bytes),
            "empty": 1,
            "last": 1,
            "push": len(Engine),
        }
    )


def row_layout(config: Config) -> data.StructLayout:
    """Return one row of a LOAD or STORE; outside it starts at word ``word_addr``."""
    return data.StructLayout(
        {"word_addr": unsigned(word_addr_width(config)), "span": span_layout(config)}
    )


def piece_layout(config: Config) -> data.StructLayout:
    """Return one burst of ``last + 1`` words from word ``word_addr`` on.

    ``end`` marks the last burst of a command and brings its ``push``; an ``empty`` one has no
    words.
    """
    return data.StructLayout(
        {
            "word_addr": unsigned(word_addr_width(config)),
            "last": unsigned(8),
            "empty": 1,
            "end": 1,
            "push": len(Engine),
        }
    )


class Rows(Component):
    """Names the rows of LOAD and STORE commands, one a cycle.

    ``i`` takes commands, ``o`` names the rows to move; a command of no rows or of no bytes
    gives one that is ``empty``. ``busy`` is 1 while a command is not finished. One idle cycle
    between commands. With ``registered`` what makes a row wait comes from a register.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(command_layout(Engine.LOAD))),
                "o": Out(stream.Signature(row_layout(config))),
                "busy": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        row = Signal(row_layout(self.config), reset_less=True)
        span = row.span
        word_stride = Signal.like(row.word_addr, reset_less=True)
        sp_stride = Signal.like(span.sp_addr, reset_less=True)
        rows = Signal(COUNT_WIDTH, reset_less=True)  # left, with this one
        final = Signal()  # whether it is the last, or there is none
        advance = Signal()
        shift = (self.config.mem_bytes - 1).bit_length()

        walking = Signal()
        named = stream.Signature(row_layout(self.config)).create()
        m.d.comb += [
            self.i.ready.eq(~self.busy),
            named.p.eq(row),
            named.p.span.last.eq(final),
            named.valid.eq(walking),
            advance.eq(walking & named.ready),
        ]
        if self.config.control.registered:
            m.submodules.skid = skid = Skid(row_layout(self.config))
            connect(m, named, skid.i)
            connect(m, skid.o, flipped(self.o))
            m.d.comb += self.busy.eq(walking | skid.o.valid)
        else:
            connect(m, named, flipped(self.o))
            m.d.comb += self.busy.eq(walking)
        with m.If(advance):
            m.d.sync += [
                row.word_addr.eq(row.word_addr + word_stride),
                span.sp_addr.eq(span.sp_addr + sp_stride),
                rows.eq(rows - 1),
                final.eq(rows == 2),
                walking.eq(~final),
            ]
        end = Signal(self.config.sp_addr_width + 1)
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
                span.tail.eq(end & (self.config.mem_bytes - 1)),
                span.empty.eq(~some),
                span.push.eq(self.i.p.push),
                word_stride.eq(self.i.p.dram_stride >> shift),
                sp_stride.eq(self.i.p.sp_stride),
                rows.eq(self.i.p.m),
                final.eq(~some | (self.i.p.m == 1)),
                walking.eq(1),
            ]
        return m


class Bursts(Component):
    """Cuts rows into bursts of external memory, one burst a cycle.

    A burst ends where the row ends, or before an address that is a multiple of ``burst_words``
    words, which makes every burst but a row's first start at one. An empty row gives one burst to
    be ignored. The first burst of a row is named in the cycle after the row was taken.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(row_layout(config))),
                "o": Out(stream.Signature(piece_layout(config))),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        row = Signal(row_layout(self.config), reset_less=True)
        final = Signal()
        bits = min((burst_words(self.config) - 1).bit_length(), len(row.word_addr))
        # The words after this one up to the boundary are the complement of the low address.
        room = Signal(bits)
        rest = Signal.like(row.span.words)  # after the next burst, if there is one
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
        return m
