"""A switch that connects the external memory port to one of two users."""

from amaranth.lib.wiring import In, Out, connect, flipped

from celosia.arch.records import Memory
from celosia.hdl.component import Component
from celosia.hdl.ports import MemoryReadPort, MemoryWritePort

_HALVES = ("read", "write")


class MemorySwitch(Component):
    """Connects the external memory port to user ``a``, or to user ``b`` while ``to_b`` is 1.

    The connection of ``read`` and ``write`` is combinational; requests of the other user wait.
    ``to_b`` may change only while no transfer is outstanding.
    """

    def __init__(self, memory: Memory):
        ports = {"read": MemoryReadPort(memory), "write": MemoryWritePort(memory)}
        super().__init__(
            {
                "to_b": In(1),
                **{name: Out(port) for name, port in ports.items()},
                **{f"{user}_{name}": In(port) for user in "ab" for name, port in ports.items()},
            }
        )

    def circuit(self, m):
        for user, chosen in (("a", ~self.to_b), ("b", self.to_b)):
            with m.If(chosen):
                for name in _HALVES:
                    connect(
                        m, flipped(getattr(self, f"{user}_{name}")), flipped(getattr(self, name))
                    )
