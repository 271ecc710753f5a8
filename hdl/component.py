"""Base class of the components: Amaranth components whose modules can be shared."""

import functools
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from amaranth.hdl import DomainRenamer, Elaboratable
from amaranth.lib import wiring


@runtime_checkable
class Placer(Protocol):
    """A platform that decides how to place a component, for example as a shared module."""

    def place(self, component: wiring.Component, elaborate: Callable) -> Elaboratable:
        """Return the replacement of a component; ``elaborate`` makes its circuit."""
        ...


class Component(wiring.Component):
    """A component that may become a separate, shared module.

    Amaranth elaborates it like any other component. If the platform is a :class:`Placer`, the
    platform decides instead. Such a component communicates through its ports only, uses clock
    domain ``sync`` and domains derived from it, and elaborates to a circuit that depends on its
    attributes alone. ``ResetInserter`` and ``EnableInserter`` have no effect inside a module made
    by a placer; components that need such controls have ports for them.
    """

    def __init_subclass__(cls, **kwargs):
        """Let the platform decide before each ``elaborate`` of a subclass."""
        super().__init_subclass__(**kwargs)
        if "elaborate" in vars(cls):
            cls.elaborate = _ask(cls.elaborate)


def _ask(elaborate: Callable) -> Callable:
    """Return an ``elaborate`` that calls the platform first if it is a placer."""

    @functools.wraps(elaborate)
    def ask(self, platform):
        if isinstance(platform, Placer):
            return platform.place(self, elaborate)
        return elaborate(self, platform)

    return ask


class InDomain(Elaboratable):
    """A component whose domain ``sync`` is replaced by domain ``domain``.

    It is placed like the component itself; the component's ports are its ports.
    """

    def __init__(self, component: wiring.Component, domain: str):
        self.component = component
        self.domain = domain

    def elaborate(self, _platform):
        return DomainRenamer({"sync": self.domain})(self.component)
