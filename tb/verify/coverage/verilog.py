"""Verilog of a component whose line and condition coverage is measured.

Modules with equal circuits have equal keys, by which the coverage of several designs is merged.
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
    """A module in a Verilog text: the lines from number ``first`` to number ``last``."""

    name: str
    first: int
    last: int
    key: str
    """Hash of the module's lines, equal for modules with equal circuits."""
    numbers: dict[int, int]
    """For each line number in the text, the line's index, which is the same in modules with equal
    keys."""

    def order(self, point: tuple[int, int, str]) -> tuple[int, int, str]:
        """Return the sort key of a coverage point, equal in all designs with this circuit.

        ``point`` is a triple: line number in the Verilog, column, and Verilator's name of the
        point.
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

        A point is one outcome of the condition in line ``line`` of the Verilog. ``comment`` is
        Verilator's name of the point; it ends with ``else`` if the point is the outcome false.
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
                # A constant ties the condition.
                decided[number] = known[name]
            elif any(name == outer for _, outer in within):
                # An enclosing block tests the same condition.
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
