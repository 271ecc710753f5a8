"""The sender of answers: sync byte, header, payload, CRC."""

from amaranth.hdl import Cat, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.crc.catalog import CRC16_IBM_3740
from amaranth.lib.wiring import In, Out

from celosia.arch.link import ANSWER_HEADER, ANSWER_SYNC, CRC_BYTES
from celosia.hdl.component import Component

ANSWER = data.StructLayout({"status": unsigned(8), "tag": unsigned(8), "length": unsigned(16)})
"""Header of an answer with a payload of ``length`` bytes."""


class AnswerSender(Component):
    """Sends the host link's answers (``celosia.arch.link``) as frames, byte by byte.

    ``i`` receives the header of an answer, and ``i_bytes`` the payload. ``o`` outputs the frame,
    with sync byte and CRC. A byte of the payload passes in the cycle in which it arrives.
    """

    i: In(stream.Signature(ANSWER))
    i_bytes: In(stream.Signature(unsigned(8)))
    o: Out(stream.Signature(unsigned(8)))

    def circuit(self, m):
        m.submodules.crc = crc = CRC16_IBM_3740().create()
        header = Signal(ANSWER)
        rest = Signal(8 * ANSWER_HEADER)
        left = Signal(16)
        moves = Signal()
        m.d.comb += [
            moves.eq(self.o.valid & self.o.ready),
            crc.data.eq(self.o.payload),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += header.eq(self.i.payload)
                with m.If(self.i.valid):
                    m.next = "SYNC"
            with m.State("SYNC"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.eq(ANSWER_SYNC),
                    crc.start.eq(1),
                ]
                m.d.sync += [rest.eq(header), left.eq(ANSWER_HEADER - 1)]
                with m.If(moves):
                    m.next = "HEADER"
            with m.State("HEADER"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.eq(rest[:8]),
                    crc.valid.eq(moves),
                ]
                with m.If(moves):
                    m.d.sync += [rest.eq(rest >> 8), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.d.sync += left.eq(header.length - 1)
                        m.next = "PAYLOAD"
                        with m.If(header.length == 0):
                            m.d.sync += left.eq(CRC_BYTES - 1)
                            m.next = "CRC"
            with m.State("PAYLOAD"):
                m.d.comb += [
                    self.o.valid.eq(self.i_bytes.valid),
                    self.o.payload.eq(self.i_bytes.payload),
                    self.i_bytes.ready.eq(self.o.ready),
                    crc.valid.eq(moves),
                ]
                with m.If(moves):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 0):
                        m.d.sync += left.eq(CRC_BYTES - 1)
                        m.next = "CRC"
            with m.State("CRC"):
                parts = Cat(crc.crc[8:], crc.crc[:8])
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.eq(parts.word_select(~left[0], 8)),
                ]
                with m.If(moves):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 0):
                        m.next = "IDLE"
