"""The smallest machine on a board that is not there: by itself, then behind its serial line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import celosia as library
from celosia.arch.support.cache import ROOT
from celosia.fpga.boards import get_board, with_flash, with_sdram
from celosia.tb.machine.toolchain import missing_tools
from tests.support.longer import longer
from tests.support.small_model import model_folder


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize("model", ["mine", *longer("digits")])
def test_icebreaker_gives_the_integers_of_the_golden_model(
    celosia, line_of, tmp_path, model: str
) -> None:
    image, folder = tmp_path / "digits.img", tmp_path / "digits"
    config = with_flash(get_board("icebreaker"), "spi").config
    library.compile(library.load("digits"), config).save(folder)
    words = (folder, "--board", "icebreaker", "--image-only", str(image), "--json")
    code, output, errors = celosia("flash", *words)
    assert code == 0, errors
    made = json.loads(output)
    assert (made["bytes"], made["address"]) == (len(image.read_bytes()), 2 << 20)
    main = [sys.executable, "-c", "from celosia.cli.main import main; main()"]
    process = subprocess.Popen(
        [*main, "board", "--board", "icebreaker", "--flash", f"spi:{image}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ,
    )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        assert line_of(port) == made["line"] == "celosia: digits, image ok, class 9\r\n"
        given: tuple[str | Path, ...] = ()
        if model == "mine":
            folder, mine = tmp_path / "small", model_folder(tmp_path)
            given = ("--inputs", mine / "inputs.npy")
            samples = np.load(mine / "inputs.npy")
            library.compile(library.load(mine), config, calibration=samples).save(folder)
        words = ("run", folder, *given, "--count", "1", "--json")
        code, output, errors = celosia("host", "--port", port, *words)
        assert code == 0, errors
        report = json.loads(output)
        assert (report["mismatches"], report["config"]) == (0, "icebreaker")
        assert report["cycles"] < 900_000
        tales, memory = library.load("tales"), get_board("icebreaker").memory_bytes
        both = ("--prompt", "on", "--prompt", "a")
        both_texts = {"context": 20, "batch": 2, "memory_bytes": memory}
        pair = library.compile(tales, config, **both_texts).save(tmp_path / "pair")
        words = (*both, "--steps", "2", "--json")
        code, output, errors = celosia("host", "--port", port, "run", pair, *words)
        assert code == 0, errors
        report = json.loads(output)
        assert (report["mismatches"], report["tensors"]) == (0, 4)
        assert report["tokens_per_second"] > 100
        assert report["tokens_per_second"] * report["mean_cycles_per_token"] == pytest.approx(21e6)
        words = ("tales", *words, "--context", "20", "--config", "small", "--sim", "golden")
        wanted = celosia("run", *words)
        assert report["texts"] == json.loads(wanted[1])["texts"]
        words = ("selftest", "--programs", "1", "--json")
        code, output, errors = celosia("host", "--port", port, *words)
        assert code == 0, output + errors
        report = json.loads(output)
        assert report["mismatches"] == 0
        assert {"core", "softmax", "norm", "all"} <= set(report["units"])
        assert {unit["result"] for unit in report["units"].values()} == {"pass"}
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_a_language_model_runs_out_of_the_psram_at_the_pins(
    celosia, simulated_board, tmp_path
) -> None:
    board, folder = with_sdram(get_board("tang_nano_9k")), tmp_path / "tales"
    tales = library.compile(library.load("tales"), board.config, context=64)
    tales.save(folder)
    held = ("--contents", str(folder / "setup_0.bin"))
    with simulated_board("--board", board.name, "--memory", "sdram", *held) as port:
        words = ("run", folder, "--prompt", "o", "--steps", "2", *held, "--json")
        code, output, errors = celosia("host", "--port", port, *words)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["tensors"], report["config"]) == (0, 2, board.name)
    assert report["cycles_per_token"] < 240_000


@pytest.mark.long  # test_cli_rates.py has inferences of a board, the test above such contents
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_the_digits_run_out_of_the_psram_at_the_pins(celosia, simulated_board, tmp_path) -> None:
    board, folder = with_sdram(get_board("tang_nano_9k")), tmp_path / "digits"
    library.compile(library.load("digits"), board.config).save(folder)
    held = ("--contents", str(folder / "image.bin"))
    with simulated_board("--board", board.name, "--memory", "sdram", *held) as port:
        words = ("run", folder, "--count", "1", *held, "--json")
        code, output, errors = celosia("host", "--port", port, *words)
    assert code == 0, errors
    assert json.loads(output)["mismatches"] == 0
