"""Tests of the wheel in a fresh environment, beside packages with the names of our rooms."""

import os
import re
import subprocess
import sys
import tarfile
import venv
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from celosia.arch.support.cache import ROOT
from celosia.cli.main import COMMANDS

COUNTER = """
`timescale 1ns/1ps
module counter(input clk, input rst, output reg [3:0] count);
  always @(posedge clk) count <= rst ? 4'd0 : count + 4'd1;
endmodule
"""

BENCH = """
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly
from tb.period import PERIOD
import sim

@cocotb.test()
async def counts(dut):
    cocotb.start_soon(Clock(dut.clk, PERIOD, unit="ns").start())
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 5)
    await ReadOnly()
    assert dut.count.value.to_unsigned() == sim.after(5)
"""

RUN = """
from cocotb_tools.runner import get_runner

def test_counter():
    runner = get_runner("icarus")
    runner.build(sources=["hdl/counter.v"], hdl_toplevel="counter")
    runner.test(hdl_toplevel="counter", test_module="tb.test_counter")
"""

SCRIPT = """
from celosia.arch.config import Config
from celosia.hdl.functions.softmax import SoftmaxUnit

rows: str = Config().replace
Config().no_such_name
SoftmaxUnit(Config())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the tracked files, as a clone has them."""
    folder = tmp_path_factory.mktemp("wheel")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in names.stdout.decode().split("\0")[:-1]:
            if os.path.lexists(ROOT / name):
                archive.add(ROOT / name, name)
    content.seek(0)
    with tarfile.open(fileobj=content) as archive:
        archive.extractall(folder / "clone", filter="data")
    _pip("wheel", "--no-deps", "--wheel-dir", folder, folder / "clone")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel without extras, and return the environment's Python."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True)
    interpreter = folder / "bin" / "python"
    _pip("--python", interpreter, "install", "--no-compile", wheel)
    return interpreter


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project of somebody else: rooms of our names, with and without __init__.py."""
    files = {
        "arch/__init__.py": "raise ImportError('arch of the user')",
        "generators/other.py": "",
        "hdl/counter.v": COUNTER,
        "sim.py": "def after(cycles):\n    return cycles\n",
        "tb/period.py": "PERIOD = 10\n",
        "tb/test_counter.py": BENCH,
        "test_run.py": RUN,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def _pip(*words: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words],
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr


def _run(command: list[str | Path], cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=cwd, env=kept | more, capture_output=True, text=True)


def test_a_wheel_has_one_name(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"celosia"}
    assert "celosia/py.typed" in names
    tracked = subprocess.run(
        ["git", "ls-files", "arch", "cli", "fpga", "generators", "hdl", "sim", "tb"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {f"celosia/{name}" for name in tracked if (ROOT / name).exists()} <= set(names)


def test_every_command_helps_without_extras(python: Path, project: Path) -> None:
    command = python.with_name("celosia")
    main = _run([command, "--help"], project)
    assert main.returncode == 0, main.stderr
    script = (
        "from celosia.cli.main import COMMANDS, celosia\n"
        "for name in COMMANDS:\n"
        "    celosia.main([name, '--help'], standalone_mode=False)\n"
    )
    every = _run([python, "-P", "-c", script], project)
    assert every.returncode == 0, every.stderr
    assert every.stdout.count("Usage: ") == len(COMMANDS)
    made = _run(
        [command, "generate", "--config", "tiny", "--unit", "requantizer", "--out", "made"], project
    )
    assert made.returncode == 0, made.stderr
    missing = _run([command, "run", "digits"], project)
    assert missing.returncode == 2
    assert re.fullmatch(
        r"celosia: .* needs? the package [\w-]+ of the extra \w+; install it with: "
        r"pip install '\.\[(\w+)\]' in a checkout, or 'FILE\.whl\[\1\]'\n",
        missing.stderr,
    ), missing.stderr


def test_types_are_seen_in_the_wheel(python: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    told = _run(
        [sys.executable, "-m", "mypy", "--python-executable", python, "script.py"], tmp_path
    ).stdout
    assert 'variable has type "str"' in told
    assert 'has no attribute "no_such_name"' in told
    assert "import-not-found" not in told
    assert "import-untyped" not in told


def test_a_cocotb_project_works_beside_it(
    python: Path, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    others = tmp_path_factory.mktemp("others")
    _pip("--python", python, "install", "--no-compile", "--target", others, "cocotb", "pytest")
    done = _run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"], project, PYTHONPATH=str(others)
    )
    assert done.returncode == 0, done.stdout
