"""A language model on a board that is not there, with less external memory than the model."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.arch.support.cache import ROOT
from celosia.fpga.device import Device
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.integers import evaluate
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.text_session import TextSession

MEMORY = 1 << 11
CONFIG = PRESETS["story"].replace(
    name="resident",
    rows=8,
    cols=8,
    lanes=4,
    weight_depth=1024,
    scratchpad_bytes=1 << 16,
    scratchpad_banks=2,
    acc_depth=512,
    program_depth=2048,
    max_row=64,
    mem_width=32,
)
CELOSIA = [sys.executable, "-c", "from celosia.cli.main import main; main()"]


def test_the_chip_fills_in_parts():
    source = load_text("tales")
    decoder = source.quantize(Quantization(texts=2, length=32))
    whole = compile_text(decoder, CONFIG.replace(program_depth=8192), context=40, rows=1)
    program = compile_text(decoder, CONFIG, context=40, memory_bytes=MEMORY)
    assert len(whole.setup) == 1
    assert program.memory_bytes <= MEMORY
    size = sum(len(fill.image) for fill in program.setup)
    assert len(program.setup) >= size / MEMORY > 4
    assert all(len(fill.words) <= CONFIG.control.program_depth for fill in program.setup)
    tokens = source.tokenizer.encode("one day")
    wanted = evaluate(decoder, tokens)["logits"][-1]
    for variant in (whole, program):
        session = TextSession(variant, "golden")
        session.take(tokens)
        assert np.array_equal(session.logits(), wanted)


@pytest.mark.long  # test_cli_micro_board.py has texts by a serial line
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_a_text_goes_on_behind_the_serial_port(tmp_path, monkeypatch, celosia):
    # A busy computer simulates slowly, and a request that is sent again makes it no faster.
    monkeypatch.setitem(Device.__init__.__kwdefaults__, "answer_seconds", 20.0)
    toml = tmp_path / "resident.toml"
    toml.write_text(CONFIG.to_toml(), encoding="utf-8")
    board = [*CELOSIA, "board", "--board", "icebreaker", "--config", str(toml)]
    process = subprocess.Popen(
        [*board, "--memory", str(MEMORY)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ,
    )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        made = ["compile", "tales", "--config", str(toml), "--context", "40"]
        folder = tmp_path / "folder"
        assert celosia(*made, "--memory", str(MEMORY), "--out", folder)[0] == 0
        words = ["host", "--port", port, "run", str(folder), "--json"]
        code, output, errors = celosia(*words, "--prompt", "one day", "--steps", "4")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stdout.close()
    assert code == 0, errors
    report = json.loads(output)
    assert report["mismatches"] == 0
    assert report["external_bytes"] == 0
    words = ["run", "tales", "--config", str(toml), "--sim", "golden", "--json"]
    words += ["--prompt", "one day", "--steps", "4", "--context", "40"]
    _, output, _ = celosia(*words)
    assert report["text"] == json.loads(output)["text"]
    assert report["cycles_per_token"] > 0
    assert report["tokens_per_second"] == pytest.approx(
        report["clock_mhz"] * 1e6 / report["mean_cycles_per_token"]
    )
