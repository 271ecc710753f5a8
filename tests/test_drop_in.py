"""What others build a generated accelerator into: plain Verilog benches, FuseSoC, LiteX."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from arch.presets import PRESETS
from arch.registers import REGISTER_MAP
from generators.cache import ROOT
from generators.verilog.fusesoc import core_file
from tb.plain_testbench import TOP, Attachment
from tb.plain_testbench import testbench as plain_testbench
from tb.toolchain import environment, missing_tools

FUSESOC = Path(sysconfig.get_path("scripts")) / "fusesoc"
"""Beside this Python, which need not be on the path."""

needs_icarus = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")


@needs_icarus
@pytest.mark.parametrize(
    ("config", "control", "bus"),
    [
        ("tiny", "native", ()),
        ("odd", "axi4-lite", ("axi4", "--bus-base", "0x40000000")),
        ("tiny", "wishbone", ("wishbone", "--bus-base", "0x8_0000_0000", "--bus-addr-width", "40")),
    ],
)
def test_the_testbench_needs_nothing_but_the_generated_files(
    celosia, plain_simulation, tmp_path: Path, config: str, control: str, bus: tuple[str, ...]
) -> None:
    words = ("generate", "--config", config, "--control", control, "--testbench", "--seed", "3")
    code, _, errors = celosia(*words, "--out", tmp_path)
    assert (code, errors) == (0, "")
    assert plain_simulation(tmp_path).splitlines()[-1].startswith("PASS: 1 runs, ")
    steps = tmp_path / "steps.hex"
    lines = steps.read_text().splitlines()
    for place in (-2, -1):  # the last word of memory, and the products that were counted
        lines[place] = f"{int(lines[place], 16) ^ 1:0{len(lines[place])}x}"
    steps.write_text("\n".join(lines) + "\n")
    output = plain_simulation(tmp_path).splitlines()
    assert output[-1] == "FAIL: 2 differences"
    assert output[1].startswith(f"word {len(lines) - 3} is ")
    assert output[2].startswith(f"register {REGISTER_MAP['MACS_LOW'].addr} is ")


def test_what_has_no_testbench_is_refused(celosia, tmp_path: Path) -> None:
    words = ("generate", "--config", "tiny", "--unit", "table", "--testbench", "--out", tmp_path)
    code, _, errors = celosia(*words)
    assert (code, errors) == (2, "celosia: Only the accelerator has a testbench, not table\n")
    assert list(tmp_path.iterdir()) == []


def test_a_testbench_needs_room_for_its_program() -> None:
    message = r"^A testbench needs \d+ words of program, but program_depth is 16$"
    config = PRESETS["tiny"].replace(program_depth=16)
    with pytest.raises(ValueError, match=message):
        plain_testbench(config, 1, Attachment(), TOP)


@needs_icarus
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.skipif(not FUSESOC.is_file(), reason="FuseSoC is not installed")
def test_fusesoc_simulates_the_core(celosia, tmp_path: Path) -> None:
    words = ("generate", "--config", "tiny", "--testbench", "--fusesoc")
    code, _, errors = celosia(*words, "--out", tmp_path / "core")
    assert (code, errors) == (0, "")
    name = "celosia:accelerators:celosia_accelerator_tiny"
    done = subprocess.run(
        [FUSESOC, "--cores-root", tmp_path / "core", "run", "--target=sim", name],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: " in done.stdout + done.stderr
    done = subprocess.run(
        [FUSESOC, "--cores-root", tmp_path / "core", "run", "--target=lint", name],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env=environment() | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "%Warning" not in done.stdout + done.stderr


def test_a_core_without_a_testbench_has_no_simulation() -> None:
    text = core_file(PRESETS["tiny"].replace(name="my own"), "celosia_table", "Tables")
    assert "name: celosia:accelerators:celosia_table_my_own:0.1.0\n" in text
    assert "  sim:" not in text
    assert "filesets: [rtl]\n    toplevel: celosia_table\n" in text


@needs_icarus
@pytest.mark.skipif(importlib.util.find_spec("litex") is None, reason="LiteX is not installed")
def test_the_litex_example_elaborates(tmp_path: Path) -> None:
    paths = {"PATH": os.defpath, "PYTHONPATH": str(ROOT)}  # nothing of the environment's own
    example = ROOT / "examples" / "litex_soc.py"
    done = subprocess.run(
        [sys.executable, example, tmp_path / "soc"],
        cwd=tmp_path,
        env=os.environ | paths,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    sources = ["celosia_soc.v", "celosia_accelerator.v"]
    done = subprocess.run(
        ["iverilog", "-g2005", "-s", "celosia_soc", "-o", "soc.vvp", *sources],
        cwd=tmp_path / "soc",
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
