"""The accelerator whose host port is on a standard bus, AXI4-Lite or Wishbone."""

from amaranth.lib.wiring import Out, connect, flipped

from celosia.arch.errors import check_known
from celosia.hdl.bus.axi4_lite import Axi4LiteControl
from celosia.hdl.bus.wishbone_control import WishboneControl
from celosia.hdl.component import Component

CONTROLS = {"axi4-lite": Axi4LiteControl, "wishbone": WishboneControl}
"""Dictionary from the name of a bus to the bridge from the host port to that bus."""

CONTROL_PREFIXES = {"axi4-lite": "s_axil_", "wishbone": "wbs_"}
"""Dictionary from the name of a bus to the prefix of its signals."""


class ControlledAccelerator(Component):
    """An accelerator with its host port on a standard bus.

    ``control`` is ``axi4-lite`` (:class:`Axi4LiteControl`) or ``wishbone``
    (:class:`WishboneControl`); another bus raises :class:`InputError`. All ports of ``accelerator``
    except ``host`` are also ports of this component.
    """

    def __init__(self, accelerator: Component, control: str):
        check_known("control", control, CONTROLS)
        self.config = accelerator.config
        self._control = CONTROLS[control]()
        self.port_meanings = {
            **getattr(accelerator, "port_meanings", {}),
            **self._control.port_meanings,
        }
        members = {
            name: member for name, member in accelerator.signature.members.items() if name != "host"
        }
        for name, member in self._control.signature.members.items():
            if name != "host":
                members[name] = member
        super().__init__(members)

    def circuit(self, m):
        m.submodules.accelerator = accelerator = self.accelerator
        m.submodules.control = control = self._control
        connect(m, control.host, accelerator.host)
        for name, member in self.signature.members.items():
            outer = getattr(self, name)
            owner = control if name in control.signature.members else accelerator
            inner = getattr(owner, name)
            if member.is_signature:
                connect(m, flipped(outer), inner)
            else:
                m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
