"""Proof that a mutation changes nothing: no state and no input tells both netlists apart."""

import re
from collections.abc import Sequence
from itertools import count

from tb.formal.prover import run_yosys
from tb.mutation.netlist import NUMBER_WIDTH, Mutant, Mutants

_SECONDS = 20  # for each proof

_REGISTER = re.compile(
    r"^  cell \$_DFF_[PN]_ \S+\n    connect \\C .*\n"
    r"    connect \\D (.*)\n    connect \\Q (.*)\n  end\n",
    re.MULTILINE,
)


def equivalent(found: Mutants, suspects: Sequence[Mutant]) -> set[int]:
    """Return the numbers of mutants whose netlist equals the unit's, in every state.

    Registers count as inputs and outputs, and memories as registers. So it is a proof for all
    states, and a mutant that differs only in states that are never reached is not found equivalent;
    nor is one whose proof takes longer than some seconds.
    """
    if not suspects:
        return set()
    script = ["read_rtlil both.il", "memory_map", "opt_clean", "dffunmap", "simplemap t:$dff"]
    run_yosys([*script, "write_rtlil bits.il"], found.folder, "Parting registers into bits")
    text = (found.folder / "bits.il").read_text(encoding="utf-8")
    (found.folder / "cut.il").write_text(_cut(text), encoding="utf-8")
    script = [
        "read_rtlil cut.il",
        "copy top gold",
        "rename top gate",
        # The unit itself has the same ports, but no number other than 0.
        "cd gold",
        "rename celosia_mutant celosia_none",
        "delete -input w:celosia_none",
        f"connect -set celosia_none {NUMBER_WIDTH}'b{'0' * NUMBER_WIDTH}",
        f"add -input celosia_mutant {NUMBER_WIDTH}",
        "cd",
        "miter -equiv -flatten -make_outputs gold gate both",
        "hierarchy -top both",
    ]
    log = found.folder / "equivalence.txt"
    log.unlink(missing_ok=True)
    for one in suspects:
        given = f"-set in_celosia_mutant {one.number}"
        prove = f"sat -timeout {_SECONDS} -prove trigger 0 {given} both"
        script += [f"tee -a {log.name} log mutant {one.number}", f"tee -a {log.name} {prove}"]
    run_yosys(script, found.folder, "Proving mutants equivalent")
    said = log.read_text(encoding="utf-8")
    parts = re.split(r"^mutant (\d+)$", said, flags=re.MULTILINE)[1:]
    return {
        int(number)
        for number, said in zip(parts[::2], parts[1::2], strict=True)
        if "SAT proof finished - no model found: SUCCESS!" in said
    }


def _cut(rtlil: str) -> str:
    """Return a netlist in which each bit of a register is an output and an input."""
    numbers = count(1 << 20)

    def ports(cell: re.Match[str]) -> str:
        number = next(numbers)
        return (
            f"  wire output {2 * number} \\celosia_next_{number}\n"
            f"  connect \\celosia_next_{number} {cell[1]}\n"
            f"  wire input {2 * number + 1} \\celosia_state_{number}\n"
            f"  connect {cell[2]} \\celosia_state_{number}\n"
        )

    return _REGISTER.sub(ports, rtlil)
