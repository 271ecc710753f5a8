"""Simplification of Amaranth's RTLIL without changing the circuit.

Unused logic and aliases of signals are removed, equal cells are merged, and wires are named after
the instance and port that they connect.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

# Names of wires, not those of ports, parameters and attributes.
_NAME = re.compile(r"(?<!    connect )(?<!parameter )(?<!attribute )[\\$]\S+")
_NAMES = re.compile(r"\\[^\s$]+\$\d+")
_ASSIGNED = re.compile(r"^ +assign ([\\$]\S+)", re.MULTILINE)
_WIRE = re.compile(r"^  wire width (\d+)( .*)? (\S+)\n", re.MULTILINE)
_CONNECT = re.compile(r"^    connect \\(\S+) (\S+)(?: \[(\d+)(?::0)?\])?\n", re.MULTILINE)
_SOURCE = re.compile(
    r"^ +(?:assign \S+ (?:\[\S+\] )?|connect \\(?!CLK|S |EN)\S+ )(.*)\n", re.MULTILINE
)
_FIRST = 100_000
"""First number of signals without a name; larger than Amaranth's numbers."""

_DELAYED = re.compile(r"_d(\d+)$")
_PIECE = re.compile(r"\\port\$\d+\$\d+")
"""A port of a part that is no component, for bits of a signal outside of it."""

_NUMBERED = re.compile(
    r"^  wire .*\b(?:input|output) \d+ +(?:signed )?(\\[^\s$]+\$\d+)$", re.MULTILINE
)
"""A port of such a part whose signal has the same name as another."""

_NUMBER = re.compile(r"\$\d+$")

# Cells without side effects, and the output port of each.
_OUTPUT = re.compile(r"^    connect \\(?:Y|Q) (.*)\n", re.MULTILINE)
_READ = re.compile(r"^    connect \\DATA (.*)\n", re.MULTILINE)
_STATE = ("$dff", "$adff", "$mem", "$any")
"""Prefixes of cell types with state: two equal cells may differ in their contents."""

_NOISE = re.compile(
    r"^ *attribute \\(?:generator|top|enum_base_type|enum_value_\d+) .*\n", re.MULTILINE
)
_ZEROS = re.compile(
    r"^  cell \$meminit_v2 .*\n(?:    .*\n)*?    connect \\DATA \d+'0*\n(?:    .*\n)*?  end\n",
    re.MULTILINE,
)


@dataclass(eq=False)
class _Item:
    """One wire, memory, cell, process or connection, with the attributes before it.

    ``head`` is the text of a cell up to its type and name, which are no wires; else empty.
    """

    kind: str
    text: str
    head: str = ""
    live: bool = False

    @property
    def cell(self) -> tuple[str, str]:
        """Type and name of a cell; empty strings for anything else."""
        words = self.head.split()
        return (words[-2], words[-1]) if words else ("", "")

    def driven(self) -> list[str] | None:
        """Return the wires that the item drives, or None if it has another effect too."""
        if self.kind == "connect":
            return _NAME.findall(self.text.split(None, 2)[1])
        if self.kind == "process":
            return _ASSIGNED.findall(self.text)
        if self.cell[0].startswith("$"):
            pattern = _READ if self.cell[0].startswith("$memrd") else _OUTPUT
            outputs = pattern.search(self.text)
            if outputs is not None:
                return _NAME.findall(outputs[1])
        return None


def tidy(text: str) -> str:
    """Return the RTLIL of one or more modules, simplified.

    Unused logic and aliases of signals are removed, equal cells are merged, and some wires are
    renamed. Initial contents of memories are omitted if they are all zeros, because zero is the
    default.
    """
    text = _ZEROS.sub("", _NOISE.sub("", re.sub(r"\n\n+", "\n", text)))
    pieces = dict.fromkeys(_PIECE.findall(text))
    numbers = {piece: f"\\piece_{number}" for number, piece in enumerate(pieces, 1)}
    text = _PIECE.sub(lambda match: numbers[match[0]], text)
    ports = {port: port.replace("$", "_port_") for port in _NUMBERED.findall(text)}
    text = _NAMES.sub(lambda match: ports.get(match[0], match[0]), text) if ports else text
    return "".join(_tidy_module(part) for part in re.split(r"(?=^module )", text, flags=re.M))


def _tidy_module(text: str) -> str:
    head, _, body = text.partition("\n")
    if not head.startswith("module "):
        return text
    items = _keep_live(_merge_equal(_items(body)))
    return f"{head}\n{_rename(items)}"


def _items(body: str) -> list[_Item]:
    """Split a module's lines into items; the module's end is an item that stays."""
    items = []
    current: list[str] = []
    kind = closing = head = ""
    for line in body.splitlines(keepends=True):
        current.append(line)
        word = line.split(None, 1)[0]
        if closing:
            if line == closing:
                items.append(_Item(kind, "".join(current), head))
                current, closing, head = [], "", ""
        elif word in ("cell", "process"):
            kind, closing = word, "  end\n"
            if word == "cell":
                head, current = "".join(current), []
        elif word != "attribute":
            items.append(_Item(word, "".join(current)))
            current = []
    return items


def _merge_equal(items: list[_Item]) -> list[_Item]:
    """Replace all cells with the same inputs by one."""
    same: dict[str, str] = {}
    outputs: dict[str, str] = {}
    result = []
    for item in items:
        _replace(item, same)
        kind, _ = item.cell
        output = _OUTPUT.search(item.text)
        if not kind.startswith("$") or kind.startswith(_STATE) or output is None:
            result.append(item)
            continue
        key = kind + item.text[: output.start()]
        if key not in outputs:
            outputs[key] = output[1]
            result.append(item)
        elif output[1].startswith("$"):
            same[output[1]] = outputs[key]
        else:
            result.append(_Item("connect", f"  connect {output[1]} {outputs[key]}\n"))
    for item in result:
        _replace(item, same)  # a use may stand before the cell
    return result


def _replace(item: _Item, names: dict[str, str]) -> None:
    """Replace names of wires in an item."""
    if names and item.kind != "wire":
        item.text = _NAME.sub(lambda match: names.get(match[0], match[0]), item.text)


def _keep_live(items: list[_Item]) -> list[_Item]:
    """Return the items on which a port, a memory or an instance depends."""
    drivers: dict[str, list[_Item]] = {}
    work = []
    for item in items:
        driven = item.driven()
        if item.kind == "wire":
            if re.search(
                r"^  wire width [1-9].*\b(?:input|output|inout) \d", item.text, re.MULTILINE
            ):
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
        for name in _NAME.findall(item.text):
            if name not in seen:
                seen.add(name)
                work += drivers.get(name, [])
    return [
        item
        for item in items
        if item.live or (item.kind == "wire" and item.text.rstrip().rsplit(None, 1)[1] in seen)
    ]


def _rename(items: list[_Item]) -> str:
    """Return the items as text with readable names of wires."""
    wires = {}
    used = set()
    cells = []
    for item in items:
        if item.kind == "wire":
            match = _WIRE.search(item.text)
            assert match is not None
            if match[2] and re.search("input|output", match[2]):
                used.add(match[3])
            else:
                wires[match[3]] = int(match[1])
        elif item.kind == "memory":
            used.add(item.text.split()[-1])
        elif item.kind == "cell" and item.cell[1].startswith("\\"):
            cells.append(item)
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def free(base: str) -> str:
        new = base
        while new in used:
            counts[base] += 1
            new = f"{base}_{counts[base] + 1}"
        used.add(new)
        return new

    for item in cells:
        kind, name = item.cell
        item.head = f"  cell {kind} {free(chr(92) + _base(name))}\n"
    wanted: dict[str, str] = {}
    for name, instance, port in _instance_wires(items, wires):
        if name not in wanted and _base(name) == port:
            wanted[name] = f"\\{instance}__{port}"

    unnamed = [wire for wire in wires if _base(wire).startswith("$")]
    for wire in wires:
        if wire not in unnamed:
            names[wire] = free(wanted.get(wire, f"\\{_base(wire)}"))
    for wire, source in _unnamed_registers(items, set(unnamed)):
        known = names.get(source, source)
        step = _DELAYED.search(known)
        cycles = int(step[1]) + 1 if step else 1
        names[wire] = free(f"{_DELAYED.sub('', known)}_d{cycles}" if known else "\\state")
    for number, wire in enumerate(unnamed):
        if not wire.startswith("$"):
            names.setdefault(wire, f"${_FIRST + number}")

    def final(match: re.Match[str]) -> str:
        return names.get(match[0], match[0])

    return "".join(item.head + _NAME.sub(final, item.text) for item in items)


def _unnamed_registers(items: list[_Item], unnamed: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each register without a name, with the nearest named wire that it depends on.

    Later registers may depend on earlier ones. A register that depends only on itself and constants
    has no such wire: "".
    """
    drivers: dict[str, _Item] = {}
    registers = []
    for item in items:
        for wire in item.driven() or ():
            drivers[wire] = item
        if item.cell[0] == "$dff":
            registers += [wire for wire in item.driven() or () if wire in unnamed]
    named: set[str] = set()
    for register in registers:
        work, seen = [register], {register}
        for wire in work:
            if wire != register and (wire not in unnamed or wire in named):
                named.add(register)
                yield register, wire
                break
            if wire in drivers:
                sources = " ".join(_SOURCE.findall(drivers[wire].text))
                work += [name for name in _NAME.findall(sources) if name not in seen]
                seen.update(work)
        else:
            yield register, ""


def _instance_wires(items: list[_Item], wires: dict[str, int]) -> list[tuple[str, str, str]]:
    """Return the wires that span a whole port of an instance, with instance and port.

    Output ports, which Amaranth writes without a bit range, are first.
    """
    outputs: list[tuple[str, str, str]] = []
    inputs: list[tuple[str, str, str]] = []
    for item in items:
        kind, instance = item.cell
        if kind.startswith("\\"):
            for port, name, high in _CONNECT.findall(item.text):
                whole = outputs if not high else inputs
                if name in wires and (not high or wires[name] == int(high) + 1):
                    whole.append((name, instance.removeprefix("\\"), port))
    return outputs + inputs


def _base(name: str) -> str:
    """Return the name of a wire's signal; unnamed ones begin with a dollar sign."""
    return name if name.startswith("$") else _NUMBER.sub("", name.removeprefix("\\").lstrip("_"))
