"""From a component to RTLIL with one module per distinct component.

Amaranth's own conversion gives every instance a module, without the ports that this instance
leaves unused. Here each component below the top is converted by itself, with all ports of its
signature, and replaced by an instance; those whose RTLIL is the same share a module. Components of
one class with the same parameters are converted once: what a component elaborates to depends on
nothing else.
"""

import gc
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, ClockSignal, Instance, Module, ResetSignal, Value

# Amaranth has no public way to look into an elaborated design; pyproject.toml pins its version.
from amaranth.hdl._ir import Fragment, PortDirection
from amaranth.hdl._mem import MemoryInstance
from amaranth.hdl._xfrm import DomainCollector
from amaranth.lib.wiring import Component, In

from arch.config import Config
from generators.prune import prune


@dataclass(frozen=True)
class Port:
    """One port of a module: a name, a width in bits, whether it is an input, and signedness."""

    name: str
    width: int
    is_input: bool
    is_signed: bool


@dataclass
class ModuleSource:
    """One distinct module: its RTLIL and the components that it stands for."""

    name: str
    ports: tuple[Port, ...]
    text: str
    components: list[Component] = field(default_factory=list)


_PLACEHOLDER = "celosia_module"
_MEMBERS: WeakKeyDictionary[Component, Any] = WeakKeyDictionary()
_PART = re.compile(rf"\\{_PLACEHOLDER}\.\S+")
_NOISE = re.compile(r"^ *attribute \\(generator|top) .*\n", re.MULTILINE)


class _Collector(DomainCollector):  # type: ignore[misc]
    """Finds the signals and the clock domains that one fragment uses, without those below."""

    def __init__(self, fragment: Any):
        super().__init__()
        self.signals: dict[int, Value] = {}
        self._root = fragment
        self.on_fragment(fragment)

    def on_Signal(self, value: Value) -> None:
        if len(value) > 0:
            self.signals[id(value)] = value

    def on_fragment(self, fragment: Any) -> None:
        if fragment is self._root:
            super().on_fragment(fragment)


class Hierarchy:
    """The distinct modules of a component, children before parents, the top last."""

    def __init__(self, component: Component, name: str):
        self.modules: list[ModuleSource] = []
        self._by_text: dict[tuple[str, str], ModuleSource] = {}
        self._by_key: dict[Any, ModuleSource] = {}
        self._names: Counter[str] = Counter([name])
        self._uses: dict[int, Counter[int]] = {}
        self._domains: dict[int, set[str]] = {}
        self._signal_names: list[tuple[Any, str]] = []
        self._known: dict[Any, set[str]] = {}
        self._repeated: dict[int, tuple[Any, Component]] = {}
        self._can_split = True
        with _no_collection():
            self._build(component, name)

    def _build(self, component: Component, name: str) -> None:
        fragment = self._elaborate(component)
        self._survey(fragment)
        self._total = self._uses[id(fragment)]
        try:
            self._split(fragment)
            text = self._convert(fragment, component).replace(_PLACEHOLDER, name)
        finally:
            for signal, own in reversed(self._signal_names):
                signal.name = own
        self.modules.append(ModuleSource(name, _ports(component), text, [component]))

    def _elaborate(self, component: Component) -> Any:
        """Return a component's fragment, in which repeated components are already instances."""
        component._MustUse__used = True
        made = component.elaborate(None)
        if isinstance(made, Module):
            for name, (part, location) in made._named_submodules.items():
                made._named_submodules[name] = (self._part(part), location)
            parts = [(self._part(part), location) for part, location in made._anon_submodules]
            made._anon_submodules[:] = parts
        fragment = Fragment.get(made, None)
        fragment.origins = (component, *(fragment.origins or ()))
        return fragment

    def _part(self, part: Any) -> Any:
        if not isinstance(part, Component):
            return part
        key = _key(part)
        if key is not None and key in self._known:
            part._MustUse__used = True
            instance = Instance("", **_connections(part, self._known[key]))
            self._repeated[id(instance)] = (key, part)
            return instance
        fragment = self._elaborate(part)
        self._survey(fragment)
        if key is not None:
            self._known[key] = self._domains[id(fragment)]
        return fragment

    def _survey(self, fragment: Any) -> None:
        """Count, for a fragment and what is below, the fragments that use each signal."""
        if id(fragment) in self._uses:
            return
        own = _Collector(fragment)
        uses = Counter(own.signals.keys())
        domains = set(own.used_domains)
        for domain in fragment.domains.values():
            # A module takes its clock as rising and its reset as synchronous.
            self._can_split &= domain.clk_edge == "pos" and not domain.async_reset
        for child, _, _ in fragment.subfragments:
            self._survey(child)
            uses.update(self._uses[id(child)])
            domains |= self._domains[id(child)]
        self._uses[id(fragment)] = uses
        self._domains[id(fragment)] = domains - set(fragment.domains)

    def _split(self, fragment: Any) -> None:
        """Replace the components below a fragment by instances of their modules."""
        for index, (child, name, location) in enumerate(fragment.subfragments):
            if id(child) in self._repeated:
                key, component = self._repeated[id(child)]
                module = self._by_key.get(key)
                if module is None:
                    # Its first occurrence has become a part of what surrounds it.
                    fragment.subfragments[index] = (self._elaborate(component), name, location)
                    continue
                child.type = module.name
            else:
                self._split(child)
                component = _component(child)
                if component is None or not self._is_closed(child, component):
                    continue
                module = self._module(child, component)
                if module is None:
                    continue
                connections = _connections(component, self._domains[id(child)])
                instance = Instance(module.name, **connections)
                fragment.subfragments[index] = (instance, name, location)
            module.components.append(component)
            self._rename_ports(component, name or f"part_{index}")

    def _rename_ports(self, component: Component, instance: str) -> None:
        """Let what surrounds an instance know its ports by the instance's name."""
        for port, _, signal in _members(component):
            self._signal_names.append((signal, signal.name))
            signal.name = f"{instance}__{port}"

    def _is_closed(self, fragment: Any, component: Component) -> bool:
        """Return whether a component meets its surroundings at its ports only."""
        ports = {id(value) for _, _, value in _members(component)}
        return self._can_split and all(
            key in ports or count == self._total[key]
            for key, count in self._uses[id(fragment)].items()
        )

    def _module(self, fragment: Any, component: Component) -> ModuleSource | None:
        text = self._convert(fragment, component)
        if f"module \\{_PLACEHOLDER}\n" not in text:
            return None  # nothing in it
        kind = type(component).__name__
        module = self._by_text.get((kind, text))
        if module is None:
            self._names[kind] += 1
            count = self._names[kind]
            name = kind if count == 1 else f"{kind}_{count}"
            module = ModuleSource(name, _ports(component), text.replace(_PLACEHOLDER, name))
            self._by_text[kind, text] = module
            self.modules.append(module)
        key = _key(component)
        if key is not None:
            self._by_key[key] = module
        return module

    def _convert(self, fragment: Any, component: Component) -> str:
        ports = {}
        for domain in sorted(self._domains[id(fragment)]):
            clock = ClockDomain(domain)
            fragment.add_domains(clock)
            for signal in (clock.clk, clock.rst):
                ports[signal.name] = (signal, PortDirection.Input)
        for name, is_input, value in _members(component):
            direction = PortDirection.Input if is_input else PortDirection.Output
            ports[name] = (value, direction)
        with _short_contents(fragment):
            text, _ = rtlil.convert_fragment(fragment, ports, _PLACEHOLDER, emit_src=False)
        text = _PART.sub(lambda match: match[0].replace(".", "_"), _NOISE.sub("", str(text)))
        return prune(text)


@contextmanager
def _short_contents(fragment: Any) -> Iterator[None]:
    """Let memories that start as zeros have no initial words: large ones take seconds."""
    contents = []
    work = [fragment]
    while work:
        part = work.pop()
        work += [child for child, _, _ in part.subfragments]
        if isinstance(part, MemoryInstance):
            initial = part._data._init
            if not any(initial._raw):
                contents.append((initial, initial._raw))
                initial._raw = []
    try:
        yield
    finally:
        for initial, words in contents:
            initial._raw = words


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold Python's garbage collector still: it would search millions of live objects in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _key(component: Component) -> Any:
    """Return what a component's module depends on, or nothing where that cannot be told."""
    ports = set(component.signature.members)
    values = {
        name: value
        for name, value in vars(component).items()
        if name not in ports and not name.startswith(("_MustUse__", "_Component__"))
    }
    if not all(_is_plain(value) for value in values.values()):
        return None
    return type(component), tuple(sorted(values.items())), _ports(component)


def _connections(component: Component, domains: set[str]) -> dict[str, Any]:
    """Return the arguments of an instance of a component: each port with its signal."""
    connections: dict[str, Any] = {}
    for domain in sorted(domains):
        clock = ClockDomain(domain)
        connections[f"i_{clock.clk.name}"] = ClockSignal(domain)
        connections[f"i_{clock.rst.name}"] = ResetSignal(domain, allow_reset_less=True)
    for port, is_input, value in _members(component):
        connections[f"{'i' if is_input else 'o'}_{port}"] = value
    return connections


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(part) for part in value)
    return value is None or isinstance(value, int | str | Config)


def _component(fragment: Any) -> Component | None:
    for origin in fragment.origins or ():
        if isinstance(origin, Component):
            return origin
    return None


def _members(component: Component) -> list[tuple[str, bool, Value]]:
    """Return name, direction and signal of each port that has a width."""
    members = _MEMBERS.get(component)
    return _flatten(component) if members is None else members


def _flatten(component: Component) -> list[tuple[str, bool, Value]]:
    members = []
    for path, member, value in component.signature.flatten(component):
        signal = Value.cast(value)
        if len(signal) > 0:
            members.append(("__".join(map(str, path)), member.flow == In, signal))
    _MEMBERS[component] = members
    return members


def _ports(component: Component) -> tuple[Port, ...]:
    return tuple(
        Port(name, len(value), is_input, value.shape().signed)
        for name, is_input, value in _members(component)
    )
