"""Base class of the project's Amaranth components; equal instances can share one module."""

import functools
import inspect
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from amaranth.hdl import DomainRenamer, Elaboratable, Module
from amaranth.lib import wiring

from celosia.arch.arguments import check_type, parameters


@runtime_checkable
class Placer(Protocol):
    """An Amaranth platform that decides for each component whether it becomes a separate module."""

    def place(self, component: wiring.Component, elaborate: Callable) -> Elaboratable:
        """Return the circuit of ``component``, or an instance of a module that has this circuit.

        The platform chooses between the two. ``elaborate`` is a function that returns the circuit;
        its arguments are a component and a platform.
        """
        ...


def _ask(elaborate: Callable) -> Callable:
    """Return an ``elaborate`` that calls the platform first if it is a placer."""

    @functools.wraps(elaborate)
    def ask(self, platform):
        if isinstance(platform, Placer):
            return platform.place(self, elaborate)
        return elaborate(self, platform)

    return ask


def _store(construct: Callable) -> Callable:
    """Return a constructor that first checks its arguments' types and stores them in attributes."""
    signature, kinds = inspect.signature(construct), parameters(construct)
    _, *names = kinds

    @functools.wraps(construct)
    def store(self, *arguments, **options):
        bound = signature.bind(self, *arguments, **options)
        bound.apply_defaults()
        for name in names:
            check_type(f"Argument {name}", kinds[name], bound.arguments[name])
        vars(self).update({name: bound.arguments[name] for name in names})
        construct(self, *arguments, **options)

    return store


class Component(wiring.Component):
    """Base class of the project's circuits; equal components can share one module.

    A subclass adds statements to the module ``m`` in ``circuit(m)``, or defines ``elaborate``. Its
    constructor's arguments become attributes; one of a wrong type raises
    :class:`celosia.arch.errors.InputTypeError`.
    """

    # A module is shared only if a component uses nothing but its ports, attributes and the domain
    # ``sync``. Its attributes are numbers, texts, shapes, records of ``celosia.arch``, or lists and
    # mappings of these, or follow from the constructor's arguments. ``ResetInserter`` and
    # ``EnableInserter`` have no effect inside a module: resets and enables are ports.
    def __init_subclass__(cls, **kwargs):
        """Store a constructor's arguments, and let the platform decide before ``elaborate``."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _store(cls.__init__)
        if "elaborate" in vars(cls):
            cls.elaborate = _ask(cls.elaborate)

    def __init__(self, signature=None, *, src_loc_at=0):
        for name in getattr(signature, "members", signature or {}):
            vars(self).pop(name, None)
        # The source line of a port is that of the subclass.
        super().__init__(signature, src_loc_at=src_loc_at + 1)

    @_ask
    def elaborate(self, _platform):
        m = Module()
        self.circuit(m)
        return m


class InDomain(Elaboratable):
    """The component ``component``, clocked by the domain ``domain`` of the surrounding circuit.

    Inside the component, the clock domain ``sync`` is renamed to ``domain``.
    """

    def __init__(self, component: wiring.Component, domain: str):
        self.component = component
        self.domain = domain

    def elaborate(self, _platform):
        return DomainRenamer({"sync": self.domain})(self.component)
