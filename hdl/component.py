"""The base class of the components: ordinary ones of Amaranth, of which modules can be shared."""

import functools
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from amaranth.hdl import DomainRenamer, Elaboratable
from amaranth.lib import wiring


@runtime_checkable
class Placer(Protocol):
    """A platform that decides what stands for each component, such as an instance of a module."""

    def place(self, component: wiring.Component, elaborate: Callable) -> Elaboratable:
        """Return what stands for a component; ``elaborate`` makes its circuit of a platform."""
        ...


class Component(wiring.Component):
    """A component that a module of its own can stand for.

    Amaranth elaborates it as any other. Only where the platform is a :class:`Placer`, this one is
    asked. Such a component meets its surroundings at its ports only, has no clock domain but
    ``sync`` and what it makes of that, and what it elaborates to depends on nothing but its
    attributes; ``ResetInserter`` and ``EnableInserter`` do not reach into a module that a placer
    has made, so that the ports have such controls where they are needed.
    """

    def __init_subclass__(cls, **kwargs):
        """Let the platform decide before each ``elaborate`` of a subclass."""
        super().__init_subclass__(**kwargs)
        if "elaborate" in vars(cls):
            cls.elaborate = _ask(cls.elaborate)


def _ask(elaborate: Callable) -> Callable:
    """Return an ``elaborate`` that asks the platform first, where this is a placer."""

    @functools.wraps(elaborate)
    def ask(self, platform):
        if isinstance(platform, Placer):
            return platform.place(self, elaborate)
        return elaborate(self, platform)

    return ask


class InDomain(Elaboratable):
    """A component whose domain ``sync`` is the surrounding domain of another name.

    It is a submodule as the component itself would be; the component's ports are its ports.
    """

    def __init__(self, component: wiring.Component, domain: str):
        self.component = component
        self.domain = domain

    def elaborate(self, _platform):
        return DomainRenamer({"sync": self.domain})(self.component)
