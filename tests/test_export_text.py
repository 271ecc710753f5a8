"""Language models in C, on the golden machine, and in a testbench, on the circuit."""

import importlib.util
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from celosia.tb.machine.toolchain import missing_tools
from tests.support.c_text import OK, ROWS, TOY, CHost, export
from tests.support.host_driver import check_languages

needs_c = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="GCC is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("peakrdl_cheader") is None, reason="PeakRDL is not installed"
    ),
]
needs_icarus = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
PAIR = TOY.replace(name="pair", source_layers=1, source_positions=9, start=3)


@pytest.fixture
def exported(celosia, tmp_path: Path):
    """Return a function that compiles a model of random weights, and returns the files' folder."""
    return partial(export, celosia, tmp_path)


class TestInC:
    """The driver for language models."""

    pytestmark = needs_c

    @pytest.mark.parametrize("argmax", ["true", "false"])
    def test_a_text_goes_on_beyond_its_cache(self, exported, argmax: str) -> None:
        words = ("--prompt", "1 5 9 2 2", "--steps", "8", "--context", "7:2")
        folder = exported(TOY, "--add", "c", *words, "--set", f"argmax={argmax}")
        if argmax == "true":
            check_languages(folder, "toy", "celosia_text")
        host = CHost(folder, "toy")
        assert (host.known["cache"]["capacity"], host.known["rows"] > 2) == (7, True)
        assert (len(host.sample), host.given) == (13, 5)
        assert host.give("celosia_text_take", host.sample[:5]) == OK
        assert host.go_on(8) == host.sample[5:]
        assert host.text.length == 13
        assert int(np.argmax(host.scores())) == host.choose()
        assert host.give("celosia_text_take", [1] * (TOY.positions - 12)) == ROWS

    def test_a_source_is_answered(self, exported) -> None:
        words = ("--prompt", "4 7 1 10", "--steps", "4", "--set", "program_depth=2048")
        host = CHost(exported(PAIR, "--add", "c", *words), "pair")
        assert host.give("celosia_text_source", host.sample[: host.given]) == OK
        assert host.give("celosia_text_take", [PAIR.start]) == OK
        assert host.go_on(4) == host.sample[host.given :]
        assert host.give("celosia_text_source", []) == ROWS
        assert host.give("celosia_text_source", [1] * 10) == ROWS


@needs_icarus
@pytest.mark.parametrize(
    "depth",
    [
        pytest.param("2", id="streamed", marks=pytest.mark.long),
        pytest.param("64", id="resident"),
    ],
)
def test_the_testbench_goes_on_with_a_prompt(exported, plain_simulation, depth: str) -> None:
    words = ("--prompt", "1 5", "--steps", "2", "--context", "7", "--set", "argmax=true")
    folder = exported(TOY, "--add", "testbench", *words, "--set", f"weight_depth={depth}")
    lines = plain_simulation(folder).splitlines()
    assert lines[-1].startswith(f"PASS: {len(lines) - 1} runs, ")
    steps = (folder / "steps.hex").read_text()
    first = steps.index("\n04") + 1
    line = steps[first : steps.index("\n", first)]
    (folder / "steps.hex").write_text(steps.replace(line, line[:-1] + f"{int(line[-1], 16) ^ 1:x}"))
    assert plain_simulation(folder).splitlines()[-1].startswith("FAIL: ")
