"""The host link: requests in, answers out, over any byte transport."""

from amaranth.hdl import unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.link import Identity
from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.link.answer import AnswerSender
from celosia.hdl.link.executor import STATUS_WIDTH, LinkExecutor
from celosia.hdl.link.request import RequestReceiver
from celosia.hdl.link.uart import RECEIVED
from celosia.hdl.ports import HostPort, MemoryReadPort, MemoryWritePort
from celosia.hdl.stream.flow import Flow


class Link(Component):
    """The host link: requests (``celosia.arch.link``) arrive on ``i``, and answers leave on ``o``.

    While ``owns`` is 1, external memory must be connected to ``mem_read`` and ``mem_write``.
    ``status`` is the last value read from STATUS. A request that pauses for ``timeout`` cycles is
    answered as corrupt.
    """

    def __init__(self, memory: Memory, *, program_depth: int, identity: Identity, timeout: int):
        super().__init__(
            {
                "i": In(Flow(RECEIVED)),
                "o": Out(stream.Signature(unsigned(8))),
                "host": Out(HostPort()),
                "mem_read": Out(MemoryReadPort(memory)),
                "mem_write": Out(MemoryWritePort(memory)),
                "owns": Out(1),
                "status": Out(STATUS_WIDTH),
            }
        )

    def circuit(self, m):
        m.submodules.receiver = receiver = RequestReceiver(self.identity.payload, self.timeout)
        m.submodules.executor = executor = LinkExecutor(
            self.memory, program_depth=self.program_depth, identity=self.identity
        )
        m.submodules.sender = sender = AnswerSender()
        connect(m, flipped(self.i), receiver.i)
        connect(m, receiver.o, executor.i)
        connect(m, executor.o, sender.i)
        connect(m, executor.o_bytes, sender.i_bytes)
        connect(m, sender.o, flipped(self.o))
        connect(m, executor.host, flipped(self.host))
        connect(m, executor.mem_read, flipped(self.mem_read))
        connect(m, executor.mem_write, flipped(self.mem_write))
        m.d.comb += [
            receiver.payload_addr.eq(executor.payload_addr),
            executor.payload_data.eq(receiver.payload_data),
            self.owns.eq(executor.owns),
            self.status.eq(executor.status),
        ]
