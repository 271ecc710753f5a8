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
    """Base class of components that may become separate modules; equal components share a module.

    A subclass adds its statements and submodules to the module ``m`` in its method ``circuit(m)``,
    or defines ``elaborate`` instead. If the platform is a :class:`Placer`, the platform decides
    whether the component becomes a separate module. With any other platform, Amaranth elaborates
    the component as usual. A subclass must follow these rules:

    - It communicates through its ports only.
    - It uses only the clock domain ``sync`` and domains derived from ``sync``.
    - Its circuit depends only on its attributes. Each attribute must be a number, a text, a shape,
      a record of ``celosia.arch``, or a list or mapping of these. Another type is allowed only if
      the constructor's arguments determine the attribute's value.
    - If it needs a separate reset or enable, it has a port for it: ``ResetInserter`` and
      ``EnableInserter`` have no effect inside a separate module.

    Before the first statement of a subclass's constructor, each argument becomes an attribute with
    the same name. If an argument and a port have the same name, the attribute is the port. An
    argument that is not of its annotated type raises :class:`celosia.arch.errors.InputTypeError`.
    """

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

    The component is written for the clock domain ``sync``; inside it, ``sync`` is renamed to
    ``domain``. The component can still become a separate module, if the platform is a
    :class:`Placer` (a platform that decides which components become separate modules).
    """

    def __init__(self, component: wiring.Component, domain: str):
        self.component = component
        self.domain = domain

    def elaborate(self, _platform):
        return DomainRenamer({"sync": self.domain})(self.component)
