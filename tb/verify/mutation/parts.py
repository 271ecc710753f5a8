"""Submodules of a unit's netlist as separate circuits, each with its mutations."""

import re
from collections.abc import Sequence
from pathlib import Path

from celosia.tb.verify.formal.prover import run_yosys
from celosia.tb.verify.mutation.netlist import Mutant, Mutants

_PART = "celosia_part"


def by_part(mutants: Sequence[Mutant]) -> dict[str, list[Mutant]]:
    """Return a dictionary from a submodule's name to the list of mutants that change its cells.

    The result does not contain mutants of cells outside of submodules.
    """
    parts: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        path = re.sub(r"^\$flatten|\\", "", mutant.cell)
        part, *inner = path.split(".")
        # The last is the cell's port.
        if len(inner) > 1:
            parts.setdefault(part, []).append(mutant)
    return parts


def write_part(mutated: Mutants, part: str, mutants: Sequence[Mutant], folder: Path) -> None:
    """Write the netlist of one submodule of a unit, with mutations, to ``both.il`` in ``folder``.

    ``part`` is the submodule's name, and ``mutants`` change its cells. An input of the netlist
    selects a mutation; the other ports are the submodule's signals from and to the unit.
    """
    for name in ("flat.il", "list.ys"):
        text = (mutated.folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    lines = (folder / "list.ys").read_text(encoding="utf-8").splitlines()
    chosen = [
        lines[mutant.number - 1].replace(" -module top ", f" -module {_PART} ")
        for mutant in mutants
    ]
    (folder / "list.ys").write_text("\n".join([*chosen, ""]), encoding="utf-8")
    script = ["read_rtlil flat.il"]
    script += [f"submod -name {_PART} top/c:$flatten\\{part}.* top/c:{part}.*"]
    script += ["delete top", "script list.ys", f"rename {_PART} top", "write_rtlil both.il"]
    run_yosys(script, folder, f"Cutting out {part}")
