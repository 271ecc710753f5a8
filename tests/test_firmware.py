"""Firmware on a processor beside the accelerator, in simulation."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.arch.support.cache import ROOT
from celosia.generators.frontend import digits
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.model_testbench import golden_outputs
from tests.support.host_driver import FLAGS
from tests.support.longer import longer
from tests.support.small_model import model_folder

IMAGES = 5
PAGE = (ROOT / "docs" / "firmware.md").read_text(encoding="utf-8")
LINE = re.compile(r"image (\d) is (\d):((?: -?\d+){10}), (\d+) cycles")
MISSING = [
    *missing_tools("verilator"),
    *(name for name in ("riscv64-unknown-elf-gcc",) if shutil.which(name) is None),
    *(
        name
        for name in ("litex", "pythondata_cpu_vexriscv", "peakrdl_cheader")
        if importlib.util.find_spec(name) is None
    ),
]


def blocks(language: str) -> list[str]:
    """Return the page's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def shell(folder: Path, commands: str) -> str:
    """Run a block's commands in a folder; return their output."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PATH": path},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="GCC is not installed")
@pytest.mark.skipif(
    importlib.util.find_spec("peakrdl_cheader") is None, reason="PeakRDL is not installed"
)
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    files, text, testbench, driver, two, system = blocks("sh")
    # Models of the page take half a minute under Icarus.
    mine = model_folder(tmp_path)
    small = f"{mine} --inputs {mine / 'inputs.npy'}"
    shell(tmp_path, files.replace("digits", small, 1))
    listed = set(re.findall(r"`([\w.]+)`", PAGE.split("| file |")[1]))
    assert {path.name for path in (tmp_path / "build" / "digits").iterdir()} <= listed
    last = shell(tmp_path, testbench.replace("digits", small, 1)).splitlines()[-1]
    assert last.startswith("PASS: 1 runs, ")
    shell(tmp_path, driver)
    folder = tmp_path / "build" / "digits_c"
    listed = set(re.findall(r"`([\w.]+)`", PAGE.split("| file |")[3]))
    added = {path.name for path in folder.iterdir() if path.suffix in (".c", ".h", ".rdl")}
    assert added <= listed
    classify, go_on = blocks("c")
    (folder / "page.c").write_text(classify)
    shell(folder, f"gcc {' '.join(FLAGS)} -c page.c")
    compiling, running = text.splitlines()
    shell(tmp_path, f"{compiling} --add c")
    folder = tmp_path / "build" / "tales"
    listed |= set(re.findall(r"`([\w.]+)`", PAGE.split("| file |")[2]))
    added = {path.name.replace("tales_model", "digits_model") for path in folder.iterdir()}
    assert added <= listed
    (folder / "page.c").write_text(go_on)
    shell(folder, f"gcc {' '.join(FLAGS)} -c page.c")
    shell(tmp_path, two)
    folder = tmp_path / "build" / "two_tales"
    assert {path.name for path in folder.glob("celosia_text*")} <= set(
        re.findall(r"`([\w.]+)`", PAGE)
    )
    shutil.copy(ROOT / "examples" / "firmware" / "two_texts.c", folder / "page.c")
    shell(folder, f"gcc {' '.join(FLAGS)} -c page.c")
    # Tests of compiled language models run their folders.
    assert running.startswith("celosia run build/tales ")
    # The last block's commands are run by the test of the firmware.
    assert system.split()[1:] == ["examples/litex_firmware.py", "build/soc", "small"]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} not found here")
@pytest.mark.parametrize("config", ["tiny", *longer("small")])
def test_firmware_classifies_images_with_the_golden_integers(tmp_path: Path, config: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "litex_firmware.py", tmp_path / "soc", config],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = LINE.findall(done.stdout)
    assert [int(image) for image, *_ in lines] == list(range(IMAGES))
    # The script's configuration has another mem_addr_width, which no integer depends on.
    compiled = compile_digits("digits", PRESETS[config])
    images = digits.patches(digits.load()[1].images[:IMAGES])
    for (_, digit, numbers, cycles), data in zip(
        lines, golden_outputs(compiled, list(images)), strict=True
    ):
        expected = np.frombuffer(data[: compiled.output_count], "<i2")
        assert [int(number) for number in numbers.split()] == expected.tolist()
        assert int(digit) == expected.argmax()
        assert int(cycles) > compiled.expect(compiled.run(), 0).cycles
    last = f"{IMAGES} outputs of {IMAGES} are the golden model's\n"
    shown = done.stdout[done.stdout.index("image 0 is") :]
    shown = shown[: shown.index(last)] + last
    # Cycles may differ from the page's: a change to the circuit need not be a change of the page.
    block, output = (re.sub(r"\d+ cycles", "N cycles", text) for text in (*blocks("text"), shown))
    assert block == output
