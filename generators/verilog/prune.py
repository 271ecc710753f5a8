"""Removes from Amaranth's RTLIL what drives nothing: aliases of signals, and logic without use."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"[\\$]\S+")
_ASSIGNED = re.compile(r"^ +assign ([\\$]\S+)", re.MULTILINE)

# Cells without an effect of their own, and the port at which each gives its result.
_OUTPUT = re.compile(r"^    connect \\(?:Y|Q) (.*)$", re.MULTILINE)
_READ = re.compile(r"^    connect \\DATA (.*)$", re.MULTILINE)


@dataclass
class _Item:
    """One wire, memory, cell, process or connection, with the attributes before it."""

    kind: str
    text: str
    live: bool = False

    def names(self) -> list[str]:
        return _NAME.findall(self.text)

    def driven(self) -> list[str] | None:
        """Return the wires that the item drives, or None where it has another effect as well."""
        if self.kind == "connect":
            return _NAME.findall(self.text.split(None, 2)[1])
        if self.kind == "process":
            return _ASSIGNED.findall(self.text)
        if self.kind == "cell":
            pattern = _READ if self.text.lstrip().startswith("cell $memrd") else _OUTPUT
            outputs = pattern.search(self.text)
            if re.match(r"\s*cell \$", self.text) and outputs is not None:
                return _NAME.findall(outputs[1])
        return None


def prune(text: str) -> str:
    """Return the text of one or more modules without what no port and no instance depends on.

    Memories' initial contents of no words, which stand for zeros, are left out as well.
    """
    return "".join(_prune_module(part) for part in re.split(r"(?=^module )", text, flags=re.M))


def _prune_module(text: str) -> str:
    lines = text.splitlines(keepends=True)
    if not lines or not lines[0].startswith("module "):
        return text
    items = _items(lines[1:])
    drivers: dict[str, list[_Item]] = {}
    work = []
    for item in items:
        driven = item.driven()
        if item.kind == "wire":
            if re.search(r"^  wire .*\b(?:input|output|inout) \d", item.text, re.MULTILINE):
                work.append(item)
        elif driven is None:
            work.append(item)
        else:
            for name in driven:
                drivers.setdefault(name, []).append(item)
    seen: set[str] = set()
    while work:
        item = work.pop()
        if item.live:
            continue
        item.live = True
        for name in item.names():
            if name not in seen:
                seen.add(name)
                work += drivers.get(name, [])
    kept = [
        item.text
        for item in items
        if item.live or (item.kind == "wire" and _wire_name(item.text) in seen)
    ]
    return lines[0] + "".join(kept)


def _wire_name(text: str) -> str:
    return text.rstrip().rsplit(None, 1)[1]


def _items(lines: list[str]) -> list[_Item]:
    """Cut a module's lines into items; its end and what follows are an item that stays."""
    items = []
    current: list[str] = []
    kind = closing = ""
    for line in lines:
        if not line.strip():
            continue
        current.append(line)
        word = line.split(None, 1)[0]
        if closing:
            if line.rstrip() == closing:
                items.append(_Item(kind, "".join(current)))
                current, closing = [], ""
        elif word in ("cell", "process"):
            kind, closing = word, "  end"
        elif word != "attribute":
            items.append(_Item(word, "".join(current)))
            current = []
    return [item for item in items if not _is_empty_content(item)]


def _is_empty_content(item: _Item) -> bool:
    return item.kind == "cell" and "cell $meminit" in item.text and r"\DATA {  }" in item.text
