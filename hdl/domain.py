"""A component in another clock domain than ``sync``."""

from amaranth.hdl import DomainRenamer, Elaboratable
from amaranth.lib.wiring import Component


class InDomain(Elaboratable):
    """A component whose domain ``sync`` is the surrounding domain of another name.

    It is a submodule as the component itself would be; the component's ports are its ports.
    """

    def __init__(self, component: Component, domain: str):
        self.component = component
        self.domain = domain

    def elaborate(self, _platform):
        return DomainRenamer({"sync": self.domain})(self.component)
