"""The distinct modules of a design, with their final names."""

import re
from collections import Counter
from dataclasses import dataclass

from amaranth.hdl import Shape
from amaranth.lib.wiring import Component

from generators.verilog.hierarchy import SELF, Draft, Tree
from generators.verilog.parallel import parallel_map
from generators.verilog.shortcuts import shortcuts


@dataclass(frozen=True)
class ModuleSource:
    """One module: its name, the class it comes from, what is said of it, and its RTLIL."""

    name: str
    kind: str
    meaning: str
    parameters: dict[str, str]
    text: str


_IDENTITY = re.compile(r"\\(celosia:(?:\w+:)+)(\S*)")


def distinct_modules(component: Component, name: str) -> list[ModuleSource]:
    """Return the modules of a component and of everything below, the top first.

    The top has the given name, every other module that of its class, with a number from the second
    set of parameters on.
    """
    with shortcuts():
        top = Tree(component, "celosia:top:", defer=True)
        # The widest first: they take longest.
        order = sorted(top.deferred, key=lambda key: -_width(top.deferred[key]))
        found = parallel_map(lambda key: Tree(top.deferred[key], key).drafts, order)
    drafts = [draft for key in top.deferred for draft in found[order.index(key)]]
    return _named([*drafts, *top.drafts], name)[::-1]


def _width(component: Component) -> int:
    flattened = component.signature.flatten(component)
    return sum(Shape.cast(member.shape).width for _, member, _ in flattened)


def _named(drafts: list[Draft], top: str) -> list[ModuleSource]:
    """Merge equal modules and give names, children before parents."""
    names: dict[str, str] = {}
    merged: dict[tuple[str, str], Draft] = {}
    taken: Counter[str] = Counter([top])
    result: list[tuple[str, Draft, str]] = []

    def final(match: re.Match[str]) -> str:
        name = names.get(match[1], match[1])
        return f"\\{name}{'_' if match[2] else ''}{match[2]}"

    for draft in drafts:
        text = _IDENTITY.sub(final, draft.text)
        key = (draft.kind, text)
        if key in merged:
            first = merged[key]
            first.share(draft.parameters)
            names[draft.identity] = names[first.identity]
            continue
        merged[key] = draft
        if draft is drafts[-1]:
            name = top
        else:
            taken[draft.kind] += 1
            count = taken[draft.kind]
            name = draft.kind if count == 1 else f"{draft.kind}_{count}"
        names[draft.identity] = name
        result.append((name, draft, text))
    return [
        ModuleSource(name, draft.kind, draft.meaning, draft.parameters, _own(text, name))
        for name, draft, text in result
    ]


def _own(text: str, name: str) -> str:
    """Return a module's text with its own name in place."""
    inner = re.compile(rf"\\{SELF}_?(\S*)")
    return inner.sub(lambda match: f"\\{name}{'_' if match[1] else ''}{match[1]}", text)
