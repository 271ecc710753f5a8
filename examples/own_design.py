"""A user's Amaranth design around the accelerator, with the memory's words as streams.

The words that the program loads are read from one stream, and the words that it stores are written
to another, as between a sensor and an actuator. The program is written and started through
``host``. This file prints the design's Verilog, converted by Amaranth alone.
"""

from amaranth.back import verilog
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

import celosia
from celosia.hdl.ports import HostPort


class StreamProcessor(wiring.Component):
    """An accelerator that loads the words of ``samples`` and stores to ``results``, in order."""

    def __init__(self, config: celosia.Config):
        self.config = config
        words = stream.Signature(config.memory.width)
        super().__init__({"host": In(HostPort()), "samples": In(words), "results": Out(words)})

    def elaborate(self, _platform: object) -> Module:
        """Connect the streams to the halves of the memory port."""
        m = Module()
        m.submodules.accelerator = accelerator = celosia.hdl.Accelerator(self.config)
        read, write = accelerator.mem_read, accelerator.mem_write
        connect(m, flipped(self.host), accelerator.host)
        connect(m, flipped(self.samples), read.data)
        busy, left = Signal(), Signal(8)  # a burst being stored, and its words behind this one
        m.d.comb += [
            read.request.ready.eq(1),
            write.request.ready.eq(~busy),
            self.results.payload.eq(write.data.p.data),
            self.results.valid.eq(write.data.valid & busy),
            write.data.ready.eq(self.results.ready & busy),
        ]
        m.d.sync += write.written.eq(0)
        with m.If(write.request.valid & ~busy):
            m.d.sync += [busy.eq(1), left.eq(write.request.p.last)]
        with m.Elif(write.data.valid & write.data.ready):
            m.d.sync += [left.eq(left - 1), busy.eq(left != 0), write.written.eq(left == 0)]
        return m


if __name__ == "__main__":
    print(verilog.convert(StreamProcessor(celosia.config("micro")), emit_src=False))
