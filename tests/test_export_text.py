"""Language models in C, on the golden machine, and in a testbench, on the circuit."""

import ctypes
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from arch.presets import load
from generators.frontend.text_description import TextDescription
from generators.text_shapes import random_weights
from sim.interpreter import Interpreter
from tb.toolchain import missing_tools
from tests.support.host_driver import GoldenPort, HostDriver

needs_c = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="GCC is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("peakrdl_cheader") is None, reason="PeakRDL is not installed"
    ),
]
needs_icarus = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
TOY = TextDescription(
    name="toy", vocabulary=11, positions=24, dim=8, layers=1, heads=2, ffn=12, head_dim=4,
    norm="layernorm", position="learned", gated=False, activation="relu", bias=True,
)  # fmt: skip
PAIR = TOY.replace(name="pair", source_layers=1, source_positions=9, start=3)
OK, ROWS = 0, 4


class Text(ctypes.Structure):
    """The driver's ``celosia_text_t``."""

    _fields_ = (("length", ctypes.c_uint32), ("source", ctypes.c_uint32))


@pytest.fixture
def exported(celosia, tmp_path: Path):
    """Return what compiles a model of random weights, and the folder with its files."""

    def call(model: TextDescription, *options: str) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "decoder.toml").write_text(model.to_toml())
        weights = random_weights(model)
        save_file(
            {name: w.astype(np.float32) for name, w in weights.items()},
            folder / "weights.safetensors",
        )
        out = tmp_path / "out"
        code, _, errors = celosia("compile", folder, "--config", "tiny", *options, "--out", out)
        assert code == 0, errors
        return out

    return call


class CHost:
    """The driver in C with a model of a folder, on the golden machine."""

    def __init__(self, folder: Path, name: str):
        config = load(str(folder / "config.toml"))
        self.known = json.loads((folder / "model.json").read_text())
        self.port = GoldenPort(Interpreter(config))
        self.driver = HostDriver(folder, self.port)
        self.library = self.driver.library
        self.model = ctypes.byref(self.driver.symbol(f"{name}_model"))
        self.machine = ctypes.byref(self.driver.accelerator(self.known["memory_bytes"]))
        header = (folder / f"{name}_model.h").read_text().split()
        count, self.given = (
            int(header[header.index(f"{name.upper()}_SAMPLE_{what}") + 1])
            for what in ("TOKENS", "GIVEN")
        )
        self.sample = list((ctypes.c_uint32 * count).in_dll(self.library, f"{name}_sample_tokens"))
        self.text = Text(0, 0)
        assert self.library.celosia_text_load(self.machine, self.model) == OK

    def give(self, function: str, tokens: list[int]) -> int:
        """Give tokens to a function of the driver."""
        values = (ctypes.c_uint32 * max(1, len(tokens)))(*tokens)
        called = getattr(self.library, function)
        text = ctypes.byref(self.text)
        return called(self.machine, self.model, text, values, len(tokens))

    def choose(self) -> int:
        """Return the likeliest token."""
        token = ctypes.c_uint32()
        call = self.library.celosia_text_choose
        assert call(self.machine, self.model, ctypes.byref(token)) == OK
        return token.value

    def go_on(self, steps: int) -> list[int]:
        """Return the likeliest tokens, one behind the other."""
        found = []
        for _ in range(steps):
            found.append(self.choose())
            assert self.give("celosia_text_take", found[-1:]) == OK
        return found


class TestInC:
    """The driver for language models."""

    pytestmark = needs_c

    @pytest.mark.parametrize("argmax", ["true", "false"])
    def test_a_text_goes_on_beyond_its_cache(self, exported, argmax: str) -> None:
        words = ("--prompt", "1 5 9 2 2", "--steps", "8", "--context", "7", "--sinks", "2")
        folder = exported(TOY, "--c", *words, "--set", f"argmax={argmax}")
        host = CHost(folder, "toy")
        assert (host.known["cache"]["capacity"], host.known["rows"] > 2) == (7, True)
        assert (len(host.sample), host.given) == (13, 5)
        assert host.give("celosia_text_take", host.sample[:5]) == OK
        assert host.go_on(8) == host.sample[5:]
        assert host.text.length == 13
        scores = (ctypes.c_int16 * TOY.vocabulary)()
        assert host.library.celosia_text_scores(host.machine, host.model, scores) == OK
        assert int(np.argmax(scores)) == host.choose()
        assert host.give("celosia_text_take", [1] * (TOY.positions - 12)) == ROWS

    def test_a_source_is_answered(self, exported) -> None:
        words = ("--prompt", "4 7 1 10", "--steps", "4", "--set", "program_depth=2048")
        host = CHost(exported(PAIR, "--c", *words), "pair")
        assert host.give("celosia_text_source", host.sample[: host.given]) == OK
        assert host.give("celosia_text_take", [PAIR.start]) == OK
        assert host.go_on(4) == host.sample[host.given :]
        assert host.give("celosia_text_source", []) == ROWS
        assert host.give("celosia_text_source", [1] * 10) == ROWS


@needs_icarus
@pytest.mark.parametrize("depth", ["2", "64"], ids=["streamed", "resident"])
def test_the_testbench_goes_on_with_a_prompt(exported, plain_simulation, depth: str) -> None:
    words = ("--prompt", "1 5", "--steps", "2", "--context", "7", "--set", "argmax=true")
    folder = exported(TOY, "--testbench", *words, "--set", f"weight_depth={depth}")
    lines = plain_simulation(folder).splitlines()
    assert lines[-1].startswith(f"PASS: {len(lines) - 1} runs, ")
    steps = (folder / "steps.hex").read_text()
    first = steps.index("\n04") + 1
    line = steps[first : steps.index("\n", first)]
    (folder / "steps.hex").write_text(steps.replace(line, line[:-1] + f"{int(line[-1], 16) ^ 1:x}"))
    assert plain_simulation(folder).splitlines()[-1].startswith("FAIL: ")
