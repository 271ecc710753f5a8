"""The accelerator with its external memory on a standard bus."""

from amaranth.hdl import ClockDomain, ClockSignal, ResetSignal
from amaranth.lib.wiring import Out, connect, flipped

from celosia.arch.config import Config
from celosia.arch.errors import check_known
from celosia.hdl.bus.axi4 import Axi4Bridge
from celosia.hdl.bus.bus import BusAddress
from celosia.hdl.bus.wishbone import WishboneBridge
from celosia.hdl.component import Component, InDomain
from celosia.hdl.machine import machine_component

BRIDGES = {"axi4": Axi4Bridge, "wishbone": WishboneBridge}
"""Dictionary from the name of a bus to the bridge from the external memory port to that bus."""

PREFIXES = {"axi4": "m_axi_", "wishbone": "wbm_"}
"""Dictionary from the name of a bus to the prefix of its signals."""


class BusAccelerator(Component):
    """An accelerator with its external memory on a standard bus.

    ``bus`` is ``axi4`` (:class:`Axi4Bridge`) or ``wishbone`` (:class:`WishboneBridge`); another bus
    raises :class:`InputError`. ``irq`` is 1 while an enabled interrupt waits. ``mem_error`` is 1
    from the first error until reset.
    """

    def __init__(self, config: Config, bus: str, addresses: BusAddress):
        check_known("bus", bus, BRIDGES)
        self._accelerator = machine_component(config)
        self._bridge = BRIDGES[bus](config.memory, addresses)
        self.port_meanings = self._bridge.port_meanings
        # All ports of the accelerator except its memory ports, and the bridge's bus signals.
        members = {
            name: member
            for name, member in self._accelerator.signature.members.items()
            if not name.startswith("mem_")
        }
        members["mem_error"] = Out(1)
        for name, member in self._bridge.signature.members.items():
            if name.startswith(PREFIXES[bus]):
                members[name] = member
        super().__init__(members)

    def circuit(self, m):
        m.submodules.accelerator = accelerator = self._accelerator
        bridge = self._bridge
        m.domains.bus = bus = ClockDomain("bus", local=True)
        m.submodules.bridge = InDomain(bridge, "bus")
        connect(m, accelerator.mem_read, bridge.read)
        connect(m, accelerator.mem_write, bridge.write)
        m.d.comb += [
            bus.clk.eq(ClockSignal()),
            # The bus outside must be reset together with the bridge.
            bus.rst.eq(ResetSignal() | accelerator.mem_forget),
            accelerator.mem_error.eq(bridge.failed),
            accelerator.mem_reset.eq(ResetSignal()),
            self.mem_error.eq(bridge.error),
        ]
        for name, member in self.signature.members.items():
            outer = getattr(self, name)
            if member.is_signature:
                connect(m, flipped(outer), getattr(accelerator, name))
            elif name != "mem_error":
                inner = getattr(accelerator if name == "irq" else bridge, name)
                m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
