"""The documentation's site, and the timing diagrams on it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arch.errors import InputError
from tools.timing import simulate, text
from tools.timing_directive import TIMING
from tools.timing_scenarios import SCENARIOS
from tools.wavejson import cycles, wave

DOCS = Path(__file__).parents[1] / "docs"


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    words = ["-q", "-W", "--keep-going", "-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], cwd=DOCS.parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    for page in ("index", "commands", "api/hdl", "units/control"):
        assert (tmp_path / f"{page}.html").is_file()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_diagram_is_what_its_unit_does(name: str) -> None:
    found = text(simulate(SCENARIOS[name]()))
    kept = (TIMING / f"{name}.json").read_text(encoding="utf-8")
    assert found == kept, "python -m tools.timing_files makes them anew"
    waves = [signal["wave"] for signal in json.loads(found)["signal"]]
    assert len({len(letters) for letters in waves}) == 1


def test_every_page_of_a_unit_has_a_diagram() -> None:
    shown = []
    for page in sorted((DOCS / "units").glob("*.md")):
        names = re.findall(r"^```{timing} (\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert names, page
        shown += names
    assert sorted(shown) == sorted(SCENARIOS)


def test_a_closed_pipe_is_an_exception_beside_the_reader_of_waves() -> None:
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


def test_waves_are_values_before_each_edge(tmp_path: Path) -> None:
    path = tmp_path / "a.vcd"
    path.write_text(
        "$timescale 1ns $end\n$scope module top $end\n$var wire 1 ! clk $end\n"
        "$var wire 4 # n [3:0] $end\n$upscope $end\n$enddefinitions $end\n"
        "#0\n0!\nb0 #\n#5\n1!\nb1111 #\n#10\n0!\n#12\nb10 #\n#15\n1!\n#20\n0!\n#25\n1!\n"
    )
    found = cycles(path, "top.clk", ["top.n"])
    assert found == {"top.n": [0, 2, 2]}
    assert wave("n", [15, 2, 2], 4, "signed") == {"name": "n", "wave": "==.", "data": ["-1", "2"]}
    assert wave("n", [15, 2, 2], 4, "hex", [0, 1, 1])["wave"] == "x=."
    assert wave("b", [0, 0, 1], 1, "bit", [1, 0, 1])["wave"] == "0x1"
    with pytest.raises(InputError, match=f"^File {path} has no signal top.m$"):
        cycles(path, "top.clk", ["top.m"])
