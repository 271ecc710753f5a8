"""Two texts at once in C, on the golden machine and on the circuit, and in a testbench."""

import importlib.util
import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import load
from celosia.tb.machine.simulated import IcarusMachine
from celosia.tb.machine.toolchain import missing_tools
from tests.support.c_text import OK, ROWS, TOY, CTexts, export
from tests.support.host_driver import SimulatedPort
from tests.support.longer import longer

needs_c = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="GCC is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("peakrdl_cheader") is None, reason="PeakRDL is not installed"
    ),
]
needs_icarus = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
PROMPTS = ("1 5 9 2 2", "7 10 3")
BOTH = ("--prompt", PROMPTS[0], "--prompt", PROMPTS[1])
SHORT = ("--steps", "8", "--context", "7:2")


@pytest.fixture
def exported(celosia, tmp_path: Path):
    """Return a function that compiles a model of random weights, and returns the files' folder."""
    return partial(export, celosia, tmp_path)


def said(celosia, *words: str | Path) -> dict:
    """Return the figures of ``celosia run``; every tensor equals the golden machine's."""
    code, output, errors = celosia("run", *words, "--sim", "golden", "--json")
    assert code == 0, errors
    report = json.loads(output)
    assert report["mismatches"] == 0
    return report


class TestInC:
    """The driver for two texts."""

    pytestmark = needs_c

    @pytest.mark.parametrize(
        ("depth", "argmax"),
        [("2", "true"), ("64", "false"), *longer(("2", "false"), ("64", "true"))],
    )
    def test_each_text_goes_on_as_alone(self, celosia, exported, depth, argmax) -> None:
        machine = ("--set", f"argmax={argmax}", "--set", f"weight_depth={depth}")
        folder = exported(TOY, "--add", "c", *BOTH, *SHORT, *machine)
        host = CTexts(folder, "toy")
        assert (host.known["texts"], host.known["resident"]) == (2, depth == "64")
        assert (host.given, [*map(len, host.samples)]) == ([5, 3], [13, 11])
        options = ("--config", "tiny", *SHORT, *machine)
        model = folder.parent / "model"
        for prompt, sample in zip(PROMPTS, host.samples, strict=True):
            assert said(celosia, model, "--prompt", prompt, *options)["tokens"] == sample
        for words in ((model, *options), (folder, "--steps", "8")):
            texts = said(celosia, *words, *BOTH)["texts"]
            assert [text["tokens"] for text in texts] == host.samples
        for late in ((0, 0), (0, 4), (15, 0)):
            assert host.go_on(late) == host.samples
            assert list(host.texts.lengths) == [12, 10]

    def test_scores_of_each_text(self, exported) -> None:
        host = CTexts(exported(TOY, "--add", "c", *BOTH, *SHORT, "--set", "argmax=true"), "toy")
        for at in range(10):
            assert host.take(*(sample[at] for sample in host.samples)) == OK
            for text, sample in enumerate(host.samples):
                if text:
                    host.second()
                likeliest = int(np.argmax(host.scores()))
                assert host.choose() == likeliest
                assert at + 1 < host.given[text] or likeliest == sample[at + 1]
        # A text that rests stays as it is.
        scores = host.scores()
        assert host.take(host.samples[0][10], None) == OK
        host.second()
        assert host.scores() == scores
        assert host.take(None, host.samples[1][10]) == OK
        assert host.choose() == host.samples[0][11]

    def test_a_text_without_a_place_is_refused(self, exported) -> None:
        host = CTexts(exported(TOY, "--add", "c", *BOTH, *SHORT), "toy")
        for _ in range(TOY.positions):
            assert host.take(1, None) == OK
        assert [host.take(*pair) for pair in ((1, 1), (1, None), (None, 1))] == [ROWS, ROWS, OK]
        assert list(host.texts.lengths) == [TOY.positions, 1]

    @needs_icarus
    @pytest.mark.long
    def test_the_circuit_takes_two_texts(self, exported) -> None:
        words = ("--prompt", "1 5 9", "--prompt", "7", "--steps", "3", "--context", "4")
        folder = exported(TOY, "--add", "c", *words, "--set", "argmax=true")
        machine = IcarusMachine(load(str(folder / "config.toml")), memory_bytes=1 << 14)
        host = CTexts(folder, "toy", SimulatedPort(machine))
        assert host.go_on((0, 0)) == host.samples


@needs_icarus
def test_the_testbench_goes_on_with_two_prompts(exported, plain_simulation) -> None:
    prompts = ("--prompt", "1 5", "--prompt", "7")
    words = (*prompts, "--steps", "2", "--context", "4", "--set", "argmax=true")
    # The machine is that of the testbench for one text.
    folder = exported(TOY, "--add", "testbench", *words, "--set", "weight_depth=64")
    lines = plain_simulation(folder).splitlines()
    assert lines[-1].startswith(f"PASS: {len(lines) - 1} runs, ")


def test_a_folder_is_for_as_many_texts_as_it_was_compiled_for(celosia, exported) -> None:
    folder = exported(TOY, *BOTH)
    words = ("--prompt", PROMPTS[0], "--sim", "golden")
    assert celosia("run", folder, *words) == (
        2,
        "",
        "celosia: Program toy is compiled for 2 texts at once, not 1\n",
    )
    flash = ("flash", folder, "--board", "ulx3s_85f")
    code, _, errors = celosia(*flash, *words[:2], "--image-only", folder / "image")
    assert (code, errors.count("\n")) == (2, 1)
    assert "is compiled for 2 texts at once, not 1" in errors


def test_a_folder_of_one_text_takes_one(celosia, exported) -> None:
    folder = exported(TOY, "--prompt", PROMPTS[0])
    assert "texts" not in json.loads((folder / "model.json").read_text())
    code, output, errors = celosia("run", folder, *BOTH, "--sim", "golden")
    assert (code, output) == (2, "")
    assert errors == "celosia: Program toy is compiled for 1 text, not 2\n"
