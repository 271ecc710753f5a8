"""Proof that a mutant and the original unit have the same outputs in every cycle.

A mutant is a unit's netlist with one change. Both circuits begin in the state at power-on, and get
the same inputs. The proof covers all sequences of inputs.
"""

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from celosia.arch.errors import RunError
from celosia.arch.support.cache import digest
from celosia.tb.verify.formal.prover import run_yosys
from celosia.tb.verify.mutation.netlist import NUMBER_WIDTH, Mutant, Mutants
from celosia.tb.verify.mutation.parts import by_part, write_part

SECONDS = 240
"""Time for the induction of one mutant (s)."""

_TOTAL = 5  # times as long, after which no further induction begins
_REACH = 4  # a quarter of it is for states that are never reached
_WORDS, _WIDTH = 16, 32  # of the largest memories that become registers
_COMBINATIONAL = "fraig; iprove -C 500"  # equal signals first, which leave few differences
_SEQUENTIAL = "lcorr; scorr -C 100"  # registers first, as that leaves little for all signals

_MEMORY = re.compile(r"^  cell \$mem_v2 .*\n(?:    .*\n)*  end\n", re.MULTILINE)

_PAYLOAD = re.compile(
    r"^  wire (?:width (\d+) )?output (\d+) (?:signed )?\\(\S+)__payload$", re.MULTILINE
)

_ANY = """read_rtlil <<END
module \\any
  wire input 1 \\a
  wire input 2 \\b
  wire output 3 \\y
  cell $_AND_ \\and
    connect \\A \\a
    connect \\B \\b
    connect \\Y \\y
  end
end
END"""
"""A design for Yosys's ``abc``, which runs a script of ABC only with a design."""


def equivalent(mutated: Mutants, suspects: Sequence[Mutant], seconds: int = SECONDS) -> set[int]:
    """Return the numbers of the mutants in ``suspects`` that are proven equivalent to the unit.

    An equivalent mutant has the unit's outputs in every cycle from power-on, but payloads of
    streams may differ while ``valid`` is 0. ``seconds`` limits each proof by induction. Proven
    mutants are recorded in ``mutated.folder``.
    """
    version = digest(Path(__file__).read_text(encoding="utf-8"))
    kept = {
        mutant.number: mutated.folder / f"{mutant.number}.{version}.equivalent"
        for mutant in suspects
    }
    known = {number for number, path in kept.items() if path.exists()}
    left = [mutant for mutant in suspects if mutant.number not in known]
    # First a submodule is compared with its mutant, then the whole unit.
    proven: set[int] = set()
    for part, mutants in by_part(left).items():
        # Yosys does not write every part as AIGER; the whole unit is looked at in any case.
        with (
            tempfile.TemporaryDirectory(prefix="celosia.") as place,
            contextlib.suppress(RunError),
        ):
            write_part(mutated, part, mutants, Path(place))
            proven |= _equivalent(Path(place), mutants, seconds, streams=False)
    left = [mutant for mutant in left if mutant.number not in proven]
    if left:
        with tempfile.TemporaryDirectory(prefix="celosia.") as place:
            shutil.copy(mutated.folder / "both.il", place)
            proven |= _equivalent(Path(place), left, seconds, streams=True)
    with contextlib.suppress(OSError):  # a cache that cannot be written
        for number in proven:
            kept[number].touch()
    return known | proven


def _equivalent(
    folder: Path, suspects: Sequence[Mutant], seconds: int, *, streams: bool
) -> set[int]:
    _write_circuits(folder, [0, *(mutant.number for mutant in suspects)], streams=streams)
    # By the logic between registers first, which is quick.
    quick = [
        line for mutant in suspects for line in _compare(mutant.number, "comb", _COMBINATIONAL)
    ]
    _run_abc([*_parted(0), *quick], folder, SECONDS)
    left = [mutant.number for mutant in suspects if not _proven(folder, mutant.number)]
    for number in left:
        _left(folder, number).unlink(missing_ok=True)
    waiting, end = left, time.monotonic() + _TOTAL * seconds
    while waiting and time.monotonic() < end:
        lines = [line for number in waiting for line in _compare(number, "all", _SEQUENTIAL)]
        _run_abc(lines, folder, seconds)
        # The first one without an answer took too long.
        waiting = [number for number in waiting if not _left(folder, number).exists()][1:]
    left = [
        number for number in left if _left(folder, number).exists() and not _proven(folder, number)
    ]
    reach = max(1, seconds // _REACH)
    lines = [line for number in left for line in _reach(number, reach)]
    _run_abc(lines, folder, SECONDS + reach * len(left))
    return {mutant.number for mutant in suspects if _proven(folder, mutant.number)}


def _write_circuits(folder: Path, numbers: Iterable[int], *, streams: bool) -> None:
    """Write an AIGER file for each number of a mutation, equal except for that.

    With ``streams`` a payload counts only while its ``valid`` is 1.
    """
    script = ["read_rtlil both.il", "delete -input top/w:celosia_mutant", "memory_map -rom-only"]
    script += [f"memory_map t:$mem_v2 r:SIZE<={_WORDS} %i r:WIDTH<={_WIDTH} %i"]
    run_yosys([*script, "opt_clean", "write_rtlil roms.il"], folder, "Making memories logic")
    text = (folder / "roms.il").read_text(encoding="utf-8")
    text = _without_memories(text)
    text = _while_valid(text) if streams else text
    (folder / "cut.il").write_text(text, encoding="utf-8")
    script = ["read_rtlil cut.il", "simplemap", "techmap", "dffunmap", "simplemap"]
    # Registers that nothing reads are in both, or in one alone.
    script += ["setundef -zero", "opt_clean", "aigmap"]
    for number in numbers:
        script += [f"connect -set celosia_mutant {NUMBER_WIDTH}'d{number}"]
        script += [f"write_aiger -zinit {number}.aig"]
    run_yosys(script, folder, "Writing circuits as AIGER")


def _without_memories(rtlil: str) -> str:
    """Return a netlist in which the ports of memories are ports of the circuit."""
    numbers = count(1 << 20)

    def ports(cell: re.Match[str]) -> str:
        fields = dict(
            re.findall(r"^    (?:parameter|connect) \\(\w+) (.*)$", cell[0], re.MULTILINE)
        )
        lines = []
        sizes = {"WR": int(fields["WR_PORTS"]), "RD": int(fields["RD_PORTS"])}
        width, bits = int(fields["WIDTH"]), int(fields["ABITS"])
        for name, direction, size in (
            ("WR_EN", "output", sizes["WR"] * width),
            ("WR_DATA", "output", sizes["WR"] * width),
            ("WR_ADDR", "output", sizes["WR"] * bits),
            ("RD_EN", "output", sizes["RD"]),
            ("RD_ADDR", "output", sizes["RD"] * bits),
            ("RD_DATA", "input", sizes["RD"] * width),
        ):
            number = next(numbers)
            wire = f"\\celosia_memory_{number}"
            ends = (wire, fields[name]) if direction == "output" else (fields[name], wire)
            lines.append(f"  wire width {size} {direction} {number} {wire}\n")
            lines.append(f"  connect {ends[0]} {ends[1]}\n")
        return "".join(lines)

    return _MEMORY.sub(ports, rtlil)


def _while_valid(rtlil: str) -> str:
    """Return a netlist whose output payloads are 0 unless they are valid."""
    gates: list[str] = []

    def hidden(wire: re.Match[str]) -> str:
        width, number, name = int(wire[1] or 1), wire[2], wire[3]
        if not re.search(rf"^  wire output \d+ \\{re.escape(name)}__valid$", rtlil, re.MULTILINE):
            return wire[0]
        gates.append(
            f"  cell $mux $celosia_looks_{number}\n    parameter \\WIDTH {width}\n"
            f"    connect \\A {width}'{'0' * width}\n    connect \\B \\{name}__payload\n"
            f"    connect \\S \\{name}__valid\n    connect \\Y \\{name}__looked_at\n  end\n"
        )
        return (
            f"  wire width {width} \\{name}__payload\n"
            f"  wire width {width} output {number} \\{name}__looked_at"
        )

    rtlil = _PAYLOAD.sub(hidden, rtlil)
    body, end = rtlil.rstrip().removesuffix("end"), "end\n"
    return f"{body}{''.join(gates)}{end}"


def _parted(number: int) -> list[str]:
    """Return ABC's commands that write a circuit with its registers as inputs and outputs."""
    return [f"read_aiger ./{number}.aig", "comb", f"write_aiger ./{number}.comb.aig"]


def _compare(number: int, kind: str, proof: str) -> list[str]:
    """Return ABC's commands that reduce two circuits to their unproven differences."""
    suffix = ".comb.aig" if kind == "comb" else ".aig"
    lines = _parted(number) if kind == "comb" else []
    lines += [f"miter ./0{suffix} ./{number}{suffix}", proof, f"write_aiger ./{number}.left.aig"]
    return lines


def _reach(number: int, seconds: int) -> list[str]:
    """Return ABC's commands that check whether the differences can ever be reached."""
    proof = f"pdr -T {seconds}"
    return [f"read_aiger ./{number}.left.aig", proof, f"write_status ./{number}.status"]


def _run_abc(lines: Sequence[str], folder: Path, seconds: float) -> None:
    (folder / "prove.abc").write_text("\n".join([*lines, ""]), encoding="utf-8")
    # If time runs out, or ABC returns another design than Yosys', the files that it wrote count.
    with contextlib.suppress(RunError):
        run_yosys([_ANY, "abc -script prove.abc"], folder, "Proving by ABC", seconds)


def _left(folder: Path, number: int) -> Path:
    return folder / f"{number}.left.aig"


def _proven(folder: Path, number: int) -> bool:
    """Return whether only an output that is never 1 is left of two circuits."""
    status = folder / f"{number}.status"
    if status.exists() and status.read_text(encoding="utf-8").startswith("snl_UNSAT"):
        return True
    left = _left(folder, number)
    if not left.exists():
        return False
    head, output = left.read_bytes().split(b"\n", 2)[:2]
    _, _, _, latches, outputs, _ = head.split()[:6]
    assert int(outputs) == 1, head
    return int(latches) == 0 and output == b"0"
