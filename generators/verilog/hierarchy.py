"""From a component to RTLIL with one module per distinct component.

Amaranth's own conversion gives every instance a module, without the ports that this instance
leaves unused. Here each component below the top is converted by itself, with all ports of its
signature, and replaced by an instance; those whose RTLIL is the same share a module. Components of
one class with the same parameters are elaborated and converted once: what a component elaborates to
depends on nothing else.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Instance,
    Module,
    ResetSignal,
    Value,
)

# Amaranth has no public way to look into an elaborated design; pyproject.toml pins its version.
from amaranth.hdl._ir import Fragment, PortDirection
from amaranth.hdl._mem import MemoryInstance
from amaranth.hdl._xfrm import DomainCollector
from amaranth.lib.wiring import Component, In

from arch.config import Config
from generators.verilog.describe import parameters, summary
from generators.verilog.prune import prune
from hdl.domain import InDomain


@dataclass
class Draft:
    """One distinct module: its RTLIL, and what the components that it stands for have in common.

    In ``text`` the module's own name is ``SELF``, and that of another one its ``identity``.
    """

    identity: str
    kind: str
    meaning: str
    parameters: dict[str, str]
    text: str

    def share(self, given: dict[str, str]) -> None:
        """Keep the parameters that one more component has as well."""
        kept = {key: text for key, text in self.parameters.items() if given.get(key) == text}
        self.parameters = kept


SELF = "celosia:self:"
"""How a module's text calls the module itself; what follows is the name of an inner module."""

_INNER = re.compile(rf"\\{SELF}\.(\S+)")
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


class Tree:
    """The distinct modules of a component and of what is below, children before parents.

    ``identity`` begins every module's identity and is that of the component's own. With ``defer``
    the repeatable components right below are not converted: ``deferred`` holds one of each kind,
    by the identity under which their instances ask for it.
    """

    def __init__(self, component: Component, identity: str, *, defer: bool = False):
        self.drafts: list[Draft] = []
        self.deferred: dict[str, Component] = {}
        self._identity = identity
        self._defer = defer
        self._by_text: dict[tuple[str, str], Draft] = {}
        self._by_key: dict[Any, Draft] = {}
        self._known: dict[Any, set[str]] = {}
        self._repeated: dict[int, tuple[Any, Component]] = {}
        self._deferred_keys: dict[Any, str] = {}
        self._uses: dict[int, Counter[int]] = {}
        self._domains: dict[int, set[str]] = {}
        self._renamed: dict[int, str] = {}
        self._signal_names: list[tuple[Any, str]] = []
        self._ports: dict[int, tuple[Component, list[tuple[str, bool, Value]]]] = {}
        self._can_split = True
        fragment = self._elaborate(component, defer)
        self._survey(fragment)
        self._total = self._uses[id(fragment)]
        if not defer:
            # Deferred components have a clock and a reset, whether or not they use them.
            self._domains[id(fragment)] |= {"sync"}
        try:
            self._split(fragment)
            text = self._convert(fragment, component)
        finally:
            for signal, own in reversed(self._signal_names):
                signal.name = own
        self.drafts.append(_draft(component, identity, text))

    def _elaborate(self, component: Component, defer: bool = False) -> Any:
        """Return a component's fragment, in which repeated components are already instances."""
        component._MustUse__used = True
        made = component.elaborate(None)
        if isinstance(made, Module):
            defer = defer and "sync" not in made._domains
            for name, (part, location) in made._named_submodules.items():
                made._named_submodules[name] = (self._part(part, defer), location)
            parts = [
                (self._part(part, defer), location) for part, location in made._anon_submodules
            ]
            made._anon_submodules[:] = parts
        fragment = Fragment.get(made, None)
        fragment.origins = (component, *(fragment.origins or ()))
        return fragment

    def _part(self, part: Any, defer: bool) -> Any:
        domain = "sync"
        if isinstance(part, InDomain):
            part._MustUse__used = True
            part, domain = part.component, part.domain
        if not isinstance(part, Component):
            return part
        key = self._key(part)
        if key is not None and defer:
            part._MustUse__used = True
            identity = self._deferred_keys.setdefault(key, f"celosia:{len(self.deferred)}:")
            self.deferred.setdefault(identity, part)
            instance = Instance(identity, **self._connections(part, {"sync"}, domain))
            self._repeated[id(instance)] = (None, part)
            return instance
        if key is not None and key in self._known:
            part._MustUse__used = True
            instance = Instance("", **self._connections(part, self._known[key], domain))
            self._repeated[id(instance)] = (key, part)
            self._renamed[id(instance)] = domain
            return instance
        fragment = self._elaborate(part)
        self._survey(fragment)
        if key is not None:
            self._known[key] = self._domains[id(fragment)]
        self._renamed[id(fragment)] = domain
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
            own_sync = self._renamed.get(id(child), "sync")
            domains |= {own_sync if each == "sync" else each for each in self._domains[id(child)]}
        self._uses[id(fragment)] = uses
        self._domains[id(fragment)] = domains - set(fragment.domains)

    def _split(self, fragment: Any) -> None:
        """Replace the components below a fragment by instances of their modules."""
        for index, (child, name, location) in enumerate(fragment.subfragments):
            if id(child) in self._repeated:
                key, component = self._repeated[id(child)]
                if key is not None:
                    draft = self._by_key.get(key)
                    if draft is None:
                        # Its first occurrence has become a part of what surrounds it.
                        inner = self._elaborate(component)
                        domain = self._renamed.get(id(child), "sync")
                        if domain != "sync":
                            inner = DomainRenamer({"sync": domain})(inner)
                        fragment.subfragments[index] = (inner, name, location)
                        continue
                    child.type = draft.identity
                    draft.share(parameters(component))
            else:
                self._split(child)
                component, domain = _component(child), self._renamed.get(id(child), "sync")
                draft = None
                if component is not None and self._is_closed(child, component):
                    draft = self._module(child, component)
                if component is None or draft is None:
                    if domain != "sync":
                        renamed = DomainRenamer({"sync": domain})(child)
                        fragment.subfragments[index] = (renamed, name, location)
                    continue
                connections = self._connections(component, self._domains[id(child)], domain)
                instance = Instance(draft.identity, **connections)
                fragment.subfragments[index] = (instance, name, location)
                draft.share(parameters(component))
            self._rename_ports(component, name or f"part_{index}")

    def _rename_ports(self, component: Component, instance: str) -> None:
        """Let what surrounds an instance know its ports by the instance's name."""
        for port, _, signal in self._members(component):
            self._signal_names.append((signal, signal.name))
            signal.name = f"{instance}__{port}"

    def _is_closed(self, fragment: Any, component: Component) -> bool:
        """Return whether a component meets its surroundings at its ports only."""
        ports = {id(value) for _, _, value in self._members(component)}
        return self._can_split and all(
            key in ports or count == self._total[key]
            for key, count in self._uses[id(fragment)].items()
        )

    def _module(self, fragment: Any, component: Component) -> Draft | None:
        text = self._convert(fragment, component)
        if f"module \\{SELF}\n" not in text:
            return None  # nothing in it
        kind = type(component).__name__
        draft = self._by_text.get((kind, text))
        if draft is None:
            identity = f"{self._identity}{len(self.drafts)}:"
            draft = _draft(component, identity, text)
            self._by_text[kind, text] = draft
            self.drafts.append(draft)
        key = self._key(component)
        if key is not None:
            self._by_key[key] = draft
        return draft

    def _convert(self, fragment: Any, component: Component) -> str:
        ports = {}
        for domain in sorted(self._domains[id(fragment)]):
            clock = ClockDomain(domain)
            fragment.add_domains(clock)
            for signal in (clock.clk, clock.rst):
                ports[signal.name] = (signal, PortDirection.Input)
        for name, is_input, value in self._members(component):
            direction = PortDirection.Input if is_input else PortDirection.Output
            ports[name] = (value, direction)
        with _short_contents(fragment):
            text, _ = rtlil.convert_fragment(fragment, ports, SELF, emit_src=False)
        return prune(_INNER.sub(_inner_name, _NOISE.sub("", str(text))))

    def _key(self, component: Component) -> Any:
        """Return what a component's module depends on, or nothing where that cannot be told."""
        ports = set(component.signature.members)
        values = {
            name: value
            for name, value in vars(component).items()
            if name not in ports and not name.startswith(("_MustUse__", "_Component__"))
        }
        if not all(_is_plain(value) for value in values.values()):
            return None
        members = tuple(
            (name, is_input, value.shape()) for name, is_input, value in self._members(component)
        )
        return type(component), tuple(sorted(values.items())), members

    def _connections(
        self, component: Component, domains: set[str], sync: str = "sync"
    ) -> dict[str, Any]:
        """Return the arguments of an instance of a component: each port with its signal.

        ``sync`` is the domain around it that is its own ``sync``.
        """
        connections: dict[str, Any] = {}
        for domain in sorted(domains):
            clock = ClockDomain(domain)
            around = sync if domain == "sync" else domain
            connections[f"i_{clock.clk.name}"] = ClockSignal(around)
            connections[f"i_{clock.rst.name}"] = ResetSignal(around, allow_reset_less=True)
        for port, is_input, value in self._members(component):
            connections[f"{'i' if is_input else 'o'}_{port}"] = value
        return connections

    def _members(self, component: Component) -> list[tuple[str, bool, Value]]:
        """Return name, direction and signal of each port that has a width."""
        if id(component) not in self._ports:
            members = []
            for path, member, value in component.signature.flatten(component):
                signal = Value.cast(value)
                if len(signal) > 0:
                    members.append(("__".join(map(str, path)), member.flow == In, signal))
            # The component is kept as well, so that its identity stays its own.
            self._ports[id(component)] = (component, members)
        return self._ports[id(component)][1]


def _inner_name(match: re.Match[str]) -> str:
    return f"\\{SELF}{match[1].replace('.', '_')}"


def _draft(component: Component, identity: str, text: str) -> Draft:
    kind = type(component)
    return Draft(identity, kind.__name__, summary(kind), parameters(component), text)


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


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(part) for part in value)
    return value is None or isinstance(value, int | str | Config)


def _component(fragment: Any) -> Component | None:
    for origin in fragment.origins or ():
        if isinstance(origin, Component):
            return origin
    return None
