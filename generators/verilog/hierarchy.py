"""Conversion of a component to RTLIL, with one module for each distinct subcomponent.

Equal subcomponents become instances of one module with all ports of their signature.
"""

import gc
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import (
    ClockSignal,
    Elaboratable,
    Instance,
    ResetSignal,
    Shape,
    ShapeCastable,
    Value,
)
from amaranth.lib.wiring import Component, In

from celosia.arch.errors import InputTypeError
from celosia.generators.verilog.describe import parameters
from celosia.generators.verilog.rtlil import tidy
from celosia.hdl.component import Component as Stored


@dataclass
class ModuleSource:
    """A module of a design in RTLIL, the text format of the synthesis tool Yosys."""

    name: str
    component: Component
    """The first of the components that share the module."""
    parameters: dict[str, str]
    """Constructor arguments that are equal in all components that share the module."""
    text: str
    """RTLIL of the module, and of its submodules that are no components."""


def distinct_modules(
    component: Component, top: str, prefix: str, *, places: bool = False
) -> list[ModuleSource]:
    """Return a component and its subcomponents as RTLIL modules, the top module first.

    Equal subcomponents share a module. ``top`` is the top module's name. Another module's name is
    ``prefix``, an underscore, the class and a number. If ``places`` is true, each cell names the
    Python file and line that created it.
    """
    with _no_collection():
        hierarchy = _Hierarchy(prefix, top, places)
        hierarchy.convert(component, top)
    return hierarchy.sources[::-1]


_SELF = "celosia:self"
"""A module's name while it is compared with others."""

_PART = re.compile(r"\\celosia:part(\d+)")
"""The name of a subcomponent's module before it is known: the number of the module's first use."""


@dataclass(frozen=True)
class _Conversion:
    """A component's RTLIL in which its own module and those of its subcomponents have no names."""

    component: Component
    text: str
    parts: list[Any]
    """The key (:func:`circuit_key`) of the subcomponent of each use."""


_KNOWN: dict[Any, _Conversion] = {}
"""Conversions of the project's components, for all designs of a process."""

_INPUT = re.compile(r"^  wire .*\binput \d+ +\\(\S+)$", re.MULTILINE)


class _Hierarchy:
    """A platform (:class:`celosia.hdl.component.Placer`) that places instances for components.

    ``sources`` are the modules so far, children before parents.
    """

    def __init__(self, prefix: str, top: str, places: bool):
        self._top = top
        self._places = places
        self.sources: list[ModuleSource] = []
        self._prefix = prefix
        self._kinds: Counter[str] = Counter()
        self._by_key: dict[Any, ModuleSource] = {}
        self._by_text: dict[tuple[str, str], ModuleSource] = {}
        self._converting: Component | None = None
        self._uses: list[tuple[Any, ModuleSource]] = []

    def place(self, component: Component, elaborate: Callable[..., Elaboratable]) -> Elaboratable:
        """Return an instance of a component's module, which is made at its first use."""
        if component is self._converting:
            self._converting = None
            return elaborate(component, self)
        key = circuit_key(component)
        source = self._use(component, key)
        if source is None:
            return elaborate(component, self)  # nothing in it
        self._uses.append((key, source))
        first = next(n for n, (_, used) in enumerate(self._uses) if used is source)
        return Instance(f"celosia:part{first}", **_connections(component, source))

    def convert(
        self, component: Component, name: str | None = None, key: Any = None
    ) -> ModuleSource | None:
        """Return a component's module, shared by equal circuits; None if it is empty.

        Without a ``name`` it is named after its class. ``key`` is the component's
        :func:`circuit_key`.
        """
        known = _KNOWN.get((key, self._places))
        if known is None:
            text = self._text(component, key)
        else:
            parts = [self._use(_KNOWN[part, self._places].component, part) for part in known.parts]
            text = _named(known.text, parts)
        if f"module \\{_SELF}\n" not in text and name is None:
            return None
        kind = type(component).__name__
        source = self._by_text.get((kind, text)) if name is None else None
        if source is None:
            own = self._name(kind) if name is None else name
            final = text.replace(f"\\{_SELF}", f"\\{own}")
            source = ModuleSource(own, component, parameters(component), final)
            self._by_text[kind, text] = source
            self.sources.append(source)
        return source

    def _use(self, component: Component, key: Any) -> ModuleSource | None:
        """Return the module of a component that is used once more; None if it is empty."""
        source = self._by_key.get(key) if key is not None else None
        if source is None:
            source = self.convert(component, key=key)
        if source is None:
            return None
        if key is not None:
            self._by_key[key] = source
        texts = parameters(component)
        source.parameters = {
            name: text for name, text in source.parameters.items() if texts.get(name) == text
        }
        return source

    def _text(self, component: Component, key: Any) -> str:
        """Return the RTLIL of a component; its module's name is ``_SELF``."""
        self._converting, outer, self._uses = component, self._uses, []
        text = tidy(rtlil.convert(component, _SELF, self, emit_src=self._places))
        uses, self._uses = self._uses, outer
        parts = [part for part, _ in uses]
        if (
            _is_own(component)
            and key is not None
            and all((part, self._places) in _KNOWN for part in parts)
        ):
            _KNOWN[key, self._places] = _Conversion(component, text, parts)
        return _named(text, [source for _, source in uses])

    def _name(self, kind: str) -> str:
        self._kinds[kind] += 1
        count = self._kinds[kind]
        name = f"{self._prefix}_{kind}" if count == 1 else f"{self._prefix}_{kind}_{count}"
        return name if name != self._top else self._name(kind)


def _named(text: str, parts: Sequence[ModuleSource | None]) -> str:
    """Return RTLIL in which the modules of subcomponents have their names."""

    def name(number: re.Match[str]) -> str:
        part = parts[int(number[1])]
        assert part is not None, "an empty component is no instance"
        return f"\\{part.name}"

    return _PART.sub(name, text)


def circuit_key(component: Component) -> Any:
    """Return a dictionary key that is equal for components with equal circuits, or None.

    The key has the component's class, attributes and ports. The result is None if a constructor
    argument cannot be compared. For a class outside this library, it is None if any attribute
    cannot be compared.
    """
    kind, ports = type(component), set(component.signature.members)
    bases = (base for base in kind.mro() if base.__module__.startswith("amaranth."))
    private = tuple(f"_{base.__name__}__" for base in bases)
    values = dict[str, Any]()
    for name, value in vars(component).items():
        if name in ports or name.startswith(private):
            continue
        try:
            values[name] = _comparable(value)
        except TypeError:
            if not _is_own(component) or name in inspect.signature(kind).parameters:
                return None
    shapes = tuple(
        (path, member.flow, value.shape(), repr(member.init))
        for path, member, value in component.signature.flatten(component)
    )
    return kind, tuple(sorted(values.items(), key=lambda item: item[0])), shapes


def _is_own(component: Component) -> bool:
    """Return whether the class is one of the project's that stores its constructor's arguments."""
    return isinstance(component, Stored) and type(component).__module__.startswith("celosia.")


def _comparable(value: Any) -> Any:
    """Return a hashable value that is equal for equal attributes.

    Raises :class:`InputTypeError` or TypeError if attributes of this type cannot be compared.
    """
    if isinstance(value, list | tuple):
        return tuple(map(_comparable, value))
    if isinstance(value, Mapping):
        return tuple((name, _comparable(each)) for name, each in value.items())
    if isinstance(value, Shape | ShapeCastable):
        return type(value), repr(value), Shape.cast(value).width
    described = is_dataclass(value) and type(value).__module__.startswith("celosia.arch.")
    if value is None or described or isinstance(value, int | str):
        hash(value)
        return value
    raise InputTypeError(f"{type(value).__name__} cannot be compared")


def _connections(component: Component, source: ModuleSource) -> dict[str, Any]:
    """Return the arguments of an instance of a component: the signal of each port."""
    connections: dict[str, Any] = {}
    inputs = set(_INPUT.findall(source.text))
    for path, member, value in component.signature.flatten(component):
        signal = Value.cast(value)
        name = "__".join(map(str, path))
        inputs.discard(name)
        if len(signal) > 0:
            connections[f"{'i' if member.flow == In else 'o'}_{name}"] = signal
    # The other inputs are clock and reset, if used.
    if "clk" in inputs:
        connections["i_clk"] = ClockSignal()
    if "rst" in inputs:
        connections["i_rst"] = ResetSignal(allow_reset_less=True)
    return connections


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection, which would scan the millions of objects of a conversion."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
