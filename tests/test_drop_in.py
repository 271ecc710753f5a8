"""Uses of a generated accelerator: plain Verilog benches, FuseSoC, LiteX."""

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from celosia.arch.presets import PRESETS
from celosia.arch.registers import REGISTER_MAP
from celosia.arch.support.cache import ROOT
from celosia.generators.verilog.describe import ports, summary
from celosia.generators.verilog.fusesoc import core_file
from celosia.generators.verilog.units import UNITS, make_accelerator, make_unit
from celosia.tb.machine.fast_build import accelerator_verilog, uninitialized
from celosia.tb.machine.toolchain import environment, missing_tools
from celosia.tb.models.plain_testbench import TOP, Attachment
from celosia.tb.models.plain_testbench import testbench as plain_testbench
from tests.support.longer import longer
from tests.support.standards import NO_NETS, refused_by_icarus, refused_by_slang

FUSESOC = Path(sysconfig.get_path("scripts")) / "fusesoc"
"""Beside this Python, which need not be on the path."""

needs_icarus = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")


@needs_icarus
@pytest.mark.parametrize(
    ("config", "control", "bus"),
    [
        ("odd", "axi4-lite", ("axi4@0x40000000",)),
        ("tiny", "wishbone", ("wishbone:40@0x8_0000_0000",)),
        *longer(("tiny", "native", ()), ("tiny", "wishbone", ())),
    ],
)
def test_the_testbench_needs_nothing_but_the_generated_files(
    celosia, plain_simulation, tmp_path: Path, config: str, control: str, bus: tuple[str, ...]
) -> None:
    words = (
        "generate",
        "--config",
        config,
        *(word for name in bus for word in ("--bus", name)),
        "--control",
        control,
        "--add",
        "testbench",
        "--seed",
        "3",
    )
    code, _, errors = celosia(*words, "--out", tmp_path)
    assert (code, errors) == (0, "")
    assert plain_simulation(tmp_path).splitlines()[-1].startswith("PASS: 1 runs, ")
    if control == "wishbone":
        return  # a run that fails is the same on another bus, and shorter
    steps = tmp_path / "steps.hex"
    lines = steps.read_text().splitlines()
    for place in (-2, -1):  # the last word of memory, and the products that were counted
        lines[place] = f"{int(lines[place], 16) ^ 1:0{len(lines[place])}x}"
    steps.write_text("\n".join(lines) + "\n")
    output = plain_simulation(tmp_path).splitlines()
    assert output[-1] == "FAIL: 2 differences"
    assert output[1].startswith(f"word {len(lines) - 3} is ")
    assert output[2].startswith(f"register {REGISTER_MAP['MACS_LOW'].addr} is ")


def random_contents(verilog: str) -> str:
    """Return Verilog whose memories without contents begin with random ones."""
    zeros = r"^(  initial for \(_entry .*\] = )0;$"
    return re.sub(zeros, r"\1{16{$random}};", verilog, flags=re.MULTILINE)


def damage(folder: Path) -> None:
    """Expect another last word of memory."""
    lines = (folder / "steps.hex").read_text().splitlines()
    lines[-2] = f"{int(lines[-2], 16) ^ 1:0{len(lines[-2])}x}"
    (folder / "steps.hex").write_text("\n".join(lines) + "\n")


def write_testbench(folder: Path, verilog: str) -> list[str]:
    """Write a module ``top`` of ``tiny`` and its testbench; return their Verilog's names."""
    files = plain_testbench(PRESETS["tiny"], 3, Attachment(), "top") | {"top.v": verilog}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return ["top_tb.v", "top.v"]


def simulated_by_icarus(folder: Path, year: str, sources: list[str]) -> tuple[int, str]:
    """Return a testbench's status and its last line."""
    command = ["iverilog", f"-g{year}", "-Wall", "-Wno-timescale", "-o", "test.vvp", *sources]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    vvp = ["vvp", "-n", "test.vvp"]
    done = subprocess.run(vvp, cwd=folder, capture_output=True, encoding="utf-8")
    return done.returncode, done.stdout.splitlines()[-1]


@needs_icarus
def test_no_result_depends_on_what_memories_hold_at_first(tmp_path: Path) -> None:
    own = accelerator_verilog(PRESETS["tiny"])
    unknown, drawn = uninitialized(own), random_contents(own)
    assert len({own, unknown, drawn}) == 3
    status, line = simulated_by_icarus(tmp_path, "2005", write_testbench(tmp_path, unknown))
    assert status == 0
    assert line.startswith("PASS: 1 runs, ")
    sources = write_testbench(tmp_path, drawn)
    damage(tmp_path)
    assert simulated_by_icarus(tmp_path, "2012", sources) == (1, "FAIL: 1 differences")


@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.long
def test_verilator_runs_the_testbench_from_random_contents(tmp_path: Path) -> None:
    sources = write_testbench(tmp_path, uninitialized(accelerator_verilog(PRESETS["tiny"])))
    command = ["verilator", "--binary", "--quiet", "--x-initial", "unique", "--x-assign", "unique"]
    command += ["-CFLAGS", "-fcoroutines -O0", "--top-module", "top_tb", *sources]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

    def run(seed: int) -> subprocess.CompletedProcess[str]:
        options = ["+verilator+rand+reset+2", f"+verilator+seed+{seed}"]
        command = [tmp_path / "obj_dir" / "Vtop_tb", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    for seed in (1, 2, 3):
        done = run(seed)
        assert done.returncode == 0
        assert "\nPASS: 1 runs, " in done.stdout
    damage(tmp_path)
    done = run(4)
    assert done.returncode == 1
    assert "\nFAIL: 1 differences\n" in done.stdout


ATTACHMENTS = [
    Attachment(),
    Attachment("axi4-lite", "axi4", 40, 0x8_0000_0000),
    Attachment("wishbone", "wishbone", 32, 0x4000_0000),
]


@pytest.mark.parametrize("attachment", ATTACHMENTS, ids=lambda it: it.control)
def test_the_testbench_is_legal_by_both_standards(tmp_path: Path, attachment: Attachment) -> None:
    """The accelerator is a black box here; it has no time scale, and the testbench none either."""
    config = PRESETS["tiny"].replace(throttle=4, trace=True)
    component = make_accelerator(
        config, attachment.bus, attachment.addr_width, attachment.base, attachment.control
    )
    declarations = [
        f"  {port['direction']} wire [{port['width'] - 1}:0] {port['name']}"
        for port in ports(component)
    ]
    header = ",\n".join(["  input wire clk, rst", *declarations])
    (tmp_path / "top.v").write_text(f"module top (\n{header}\n);\nendmodule\n")
    text = plain_testbench(config.replace(trace=False), 3, attachment, "top")["top_tb.v"]
    bench = tmp_path / "top_tb.v"
    bench.write_text(NO_NETS + text)
    # As the header says of Verilator's lint.
    waived = "-Wno-width-trunc -Wno-unconnected-output-port"
    assert not refused_by_slang(bench, tmp_path / "top.v", options=waived)
    for port in ports(component):
        assert port["direction"] == "output" or f".{port['name']}(" in text
    if not missing_tools("icarus"):
        assert refused_by_icarus(bench, tmp_path / "top.v") == ""
    if not missing_tools("verilator"):
        command = ["verilator", "--lint-only", "--timing", "--quiet", bench, tmp_path / "top.v"]
        done = subprocess.run(command, env=environment(), capture_output=True, encoding="utf-8")
        assert (done.returncode, done.stderr) == (0, "")


def test_what_has_no_testbench_is_refused(celosia, tmp_path: Path) -> None:
    words = (
        "generate",
        "--config",
        "tiny",
        "--unit",
        "table",
        "--add",
        "testbench",
        "--out",
        tmp_path,
    )
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
    words = ("generate", "--config", "tiny", "--add", "testbench,fusesoc")
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
    damage(tmp_path / "core")
    failed = subprocess.run(
        [FUSESOC, "--cores-root", tmp_path / "core", "run", "--target=sim", name],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert failed.returncode != 0
    assert "FAIL: 1 differences" in failed.stdout + failed.stderr
    done = subprocess.run(
        [FUSESOC, "--cores-root", tmp_path / "core", "run", "--target=lint", name],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env=environment() | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "%Warning" not in done.stdout + done.stderr


def core_files(folder: Path) -> list[str]:
    """Write the core of every unit; return the cores' names."""
    for unit in UNITS:
        meaning = summary(type(make_unit(unit, PRESETS["tiny"])))
        text = core_file(PRESETS["tiny"], f"celosia_{unit}", meaning, ["a.v", "a.hex"])
        (folder / f"celosia_{unit}.core").write_text(text)
    return [f"celosia:accelerators:celosia_{unit}_tiny:0.1.0" for unit in UNITS]


@pytest.mark.skipif(not FUSESOC.is_file(), reason="FuseSoC is not installed")
def test_fusesoc_reads_the_core_of_every_unit(tmp_path: Path) -> None:
    names = core_files(tmp_path)
    done = subprocess.run(
        [FUSESOC, "--cores-root", tmp_path, "core", "list"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if "trustfile" not in line]
    assert said == []
    assert set(names) <= set(done.stdout.split())


@pytest.mark.long
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.skipif(not FUSESOC.is_file(), reason="FuseSoC is not installed")
@pytest.mark.parametrize("unit", UNITS)
def test_fusesoc_lints_every_unit(celosia, tmp_path: Path, unit: str) -> None:
    words = ("generate", "--config", "tiny", "--unit", unit, "--add", "fusesoc", "--out", tmp_path)
    assert celosia(*words)[0] == 0
    done = subprocess.run(
        [FUSESOC, "--cores-root", ".", "run", "--target=lint", f"celosia_{unit}_tiny"],
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
    core = yaml.safe_load(text.removeprefix("CAPI=2:\n"))
    assert list(core["targets"]) == ["default", "lint"]
    assert core["targets"]["default"] == {"filesets": ["rtl"], "toplevel": "celosia_table"}


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
