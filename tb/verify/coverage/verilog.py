"""Verilog of a component whose line and condition coverage is measured.

The coverage of a module is merged over all designs that contain the module. Each module is
identified by its key, a hash of its lines: modules with equal circuits have equal keys.
:meth:`CoveredVerilog.place` returns the line of Python that created a condition in the Verilog.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from amaranth.lib.wiring import Component

from celosia.arch.support.cache import PACKAGE, ROOT, digest
from celosia.generators.verilog.verilog import to_verilog

TOP = "top"

_PLACE = re.compile(r' \(\* src = "([^"]*)" \*\)')
_MODULE = re.compile(r"^module (\w+) \($")
_INSTANCE = re.compile(rf"^  ({TOP}_(\w+?)(?:_\d+)?) (?=(?:\w+|\\\S+ ) \($)")
_TIED = re.compile(r"^    \.(\w+)\(([^)]*)\),?$")
_ASSIGNED = re.compile(r"^  assign (\w+) = (\S+);$")
_ASSIGN = re.compile(r"^  assign .*;$")
_CONSTANT = re.compile(r"^1'h([01])$")
_DRIVEN = re.compile(r"^  assign (\w+) = ")
_ASKED = re.compile(r"\b(?:if|casez?) \(!?(\w+)\)|= (\w+) \?")


@dataclass(frozen=True)
class CoveredModule:
    """A module in a Verilog text: the lines from number ``first`` to number ``last``.

    ``key`` identifies the module's circuit: modules with equal circuits have equal keys, also in
    different designs. The order of assignments may differ between designs. Therefore the module's
    lines are first sorted: all other lines in the order of the text, then the assignments in
    alphabetical order. ``key`` is a hash of the sorted list.

    ``numbers`` is a dictionary from the number of a line in the text to the index of the line in
    the sorted list. In two modules with equal keys, lines with equal indices are equal.
    """

    name: str
    first: int
    last: int
    key: str
    numbers: dict[int, int]

    def order(self, point: tuple[int, int, str]) -> tuple[int, int, str]:
        """Return the sort key of a coverage point.

        ``point`` is a triple: line number in the Verilog, column, and Verilator's name of the
        point. Two designs may contain the same circuit at different line numbers. Therefore the
        sort key has, in place of the line number, an index that is the same in all designs.
        """
        line, column, comment = point
        return self.numbers[line], column, comment


class CoveredVerilog:
    """The Verilog of a component, whose coverage is measured.

    ``text`` is the Verilog, ``lines`` the list of its lines, and ``modules`` the list of its
    modules. :meth:`place` finds the Python source of a condition in the Verilog.
    """

    def __init__(self, component: Component):
        annotated = to_verilog(component, TOP, places=True)
        self.text = _PLACE.sub("", annotated)
        self.lines = self.text.splitlines()
        self.modules = _modules(self.lines, type(component).__name__)
        self._places = _places(annotated.splitlines(), self.modules)
        self._decided = _decided(self.lines, self.modules)

    def place(self, line: int) -> str:
        """Return the Python source, as ``FILE:LINE``, of the innermost condition around a line.

        ``line`` is the number of a line of the Verilog. The result is an empty text if the Python
        source is unknown.
        """
        depth = len(self.lines[line - 1]) + 1
        for number in range(line, 0, -1):
            text = self.lines[number - 1]
            indent = len(text) - len(text.lstrip())
            if indent < depth or number == line:
                depth = indent
                if number in self._places:
                    return self._places[number]
            if text.startswith(("  always", "  assign", "module")):
                break
        return ""

    def is_decided(self, line: int, comment: str) -> bool:
        """Return True if no simulation of the design can reach a coverage point of a condition.

        A condition, such as that of an ``if``, has two points: one is reached if the condition is
        true, the other if it is false. A point cannot be reached in two cases: the design ties the
        condition to a constant, or an enclosing block already tests the same condition.

        ``line`` is the number of the condition's line in the Verilog. ``comment`` is Verilator's
        name of the point; it ends with ``else`` if the point is reached when the condition is
        false.
        """
        value = self._decided.get(line)
        return value is not None and value == comment.endswith("else")


def _modules(lines: list[str], component: str) -> list[CoveredModule]:
    covered = []
    for first, text in enumerate(lines, 1):
        match = _MODULE.match(text)
        if match is None:
            continue
        last = lines.index("endmodule", first) + 1
        own = re.sub(rf"^{TOP}_|_\d+$", "", match[1])
        name = component if match[1] == TOP else own
        code = [
            (number, _INSTANCE.sub(r"  \2 ", line))
            for number, line in enumerate(lines[first:last], first + 1)
            if not line.lstrip().startswith("//")
        ]
        # Yosys writes assignments in an order that depends on other modules.
        code.sort(key=lambda each: each[1] if _ASSIGN.match(each[1]) else "")
        numbers = {number: place for place, (number, _) in enumerate(code)}
        key = digest(name, *(line for _, line in code))
        covered.append(CoveredModule(name, first, last, key, numbers))
    return covered


def _places(lines: list[str], modules: list[CoveredModule]) -> dict[int, str]:
    """Return the place of each line's condition or choice."""
    places = {}
    for module in modules:
        numbers = range(module.first, module.last)
        driven = {}
        for number in numbers:
            match = _DRIVEN.match(lines[number - 1])
            places_of_line = [_relative(each) for each in _PLACE.findall(lines[number - 1])]
            if match and any(places_of_line):
                driven[match[1]] = places[number] = next(filter(None, places_of_line))
        for number in numbers:
            asked = _ASKED.search(lines[number - 1])
            name = asked and (asked[1] or asked[2])
            if name in driven:
                places[number] = driven[name]
    return places


def _decided(lines: list[str], modules: list[CoveredModule]) -> dict[int, bool]:
    """Return the lines whose condition has only one value, with that value.

    Modules come before those that they consist of.
    """
    ties: dict[str, list[dict[str, bool | None]]] = {}
    decided = {}
    for module in modules:
        inputs = ties.get(_MODULE.match(lines[module.first - 1])[1], [])
        known = {
            port: inputs[0][port]
            for port in (inputs[0] if inputs else {})
            if inputs[0][port] is not None and all(each[port] == inputs[0][port] for each in inputs)
        }

        def value(text: str, known: dict[str, bool] = known) -> bool | None:
            match = _CONSTANT.match(text)
            return match[1] == "1" if match else known.get(text)

        within: list[tuple[int, str]] = []
        inner: dict[str, bool | None] | None = None
        for number in range(module.first, module.last):
            text = lines[number - 1]
            if (assigned := _ASSIGNED.match(text)) and value(assigned[2]) is not None:
                known[assigned[1]] = value(assigned[2])
        for number in range(module.first, module.last):
            text = lines[number - 1]
            if instance := _INSTANCE.match(text):
                inner = {}
                ties.setdefault(instance[1], []).append(inner)
            elif inner is not None and (tied := _TIED.match(text)):
                inner[tied[1]] = value(tied[2])
            asked = _ASKED.search(text)
            if not asked:
                continue
            depth = len(text) - len(text.lstrip())
            within = [each for each in within if each[0] < depth and text.startswith("    ")]
            name = asked[1] or asked[2]
            if "!" not in asked[0] and name in known:
                decided[number] = known[name]
            elif any(name == outer for _, outer in within):
                decided[number] = True
            if "if (" in asked[0] and "!" not in asked[0] and "else" not in text:
                within.append((depth, name))
    return decided


def _relative(place: str) -> str:
    """Return a place within the project's sources, or nothing for one in a library."""
    path, _, line = place.rpartition(":")
    if Path(path).is_relative_to(PACKAGE):
        return f"{os.path.relpath(path, PACKAGE)}:{line}"
    if not Path(path).is_relative_to(ROOT) or "site-packages" in Path(path).parts:
        return ""
    return f"{os.path.relpath(path, ROOT)}:{line}"
