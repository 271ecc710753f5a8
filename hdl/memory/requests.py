"""Requests of a reader of the scratchpad, each with data that go with its answer."""

from amaranth.hdl import Module, ShapeLike, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.config import Config
from celosia.hdl.component import Component
from celosia.hdl.ports import ReadPort
from celosia.hdl.stream.pipeline import delay
from celosia.hdl.stream.slice import RegisterSlice

TURNED_AT_ONCE = 8
"""Bytes of the longest line that is turned and queued in one cycle (bytes)."""


class Requests(Component):
    """Asks ``port`` for the address of each of ``i``, and tells its note as the answer comes.

    ``note`` belongs to what ``port`` answers in the same cycle, ``sram_latency`` cycles after it
    was taken. With ``registered`` requests stand between registers, as what grants them
    is far away: an answer comes a cycle later. One request a cycle.
    """

    def __init__(self, config: Config, note: ShapeLike):
        self.config = config
        self.request = data.StructLayout({"addr": unsigned(config.sp_addr_width), "note": note})
        super().__init__(
            {
                "i": In(stream.Signature(self.request)),
                "port": Out(ReadPort(config)),
                "note": Out(note),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        request = stream.Signature(self.request).create()
        if self.config.control.registered:
            m.submodules.registers = registers = RegisterSlice(self.request)
            connect(m, flipped(self.i), registers.i)
            request = registers.o
        else:
            connect(m, flipped(self.i), flipped(request))
        m.d.comb += [
            self.port.request.p.eq(request.p.addr),
            self.port.request.valid.eq(request.valid),
            request.ready.eq(self.port.request.ready),
            self.note.eq(delay(m, request.p.note, self.config.sram_latency)),
        ]
        return m


def requests_latency(config: Config) -> int:
    """Return the cycles from a request to its answer, where nothing makes it wait."""
    return config.sram_latency + config.control.registered


def lines_wait(config: Config) -> bool:
    """Return whether a line that was read is queued out of a register, a cycle later.

    It is on a ``registered`` machine whose lines are long: their way from block RAM, turned to
    begin with the request's byte, ends in a queue that may be far away.
    """
    return config.control.registered and config.line_bytes > TURNED_AT_ONCE
