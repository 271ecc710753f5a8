"""The smallest machine on a board that is not there: by itself, then behind its serial line."""

import json
import os
import signal
import subprocess
import sys

import pytest

from celosia.arch.support.cache import ROOT
from celosia.fpga.boards import get_board, with_sdram
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.digits_model import compile_digits


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_icebreaker_gives_the_integers_of_the_golden_model(celosia, line_of, tmp_path) -> None:
    image = tmp_path / "digits.img"
    words = ("--board", "icebreaker", "--model", "digits", "--image-only", str(image), "--json")
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
        words = ("run", "digits", "--count", "1", "--json")
        code, output, errors = celosia("host", "--port", port, *words)
        assert code == 0, errors
        report = json.loads(output)
        assert (report["mismatches"], report["config"]) == (0, "icebreaker")
        assert report["cycles"] < 900_000
        words = ("run", "tales", "--prompt", "one day", "--steps", "2", "--context", "64")
        code, output, errors = celosia("host", "--port", port, *words, "--json")
        assert code == 0, errors
        report = json.loads(output)
        assert (report["mismatches"], report["tensors"]) == (0, 2)
        assert report["text"] == "one day a"
        assert report["tokens_per_second"] > 100
        both = ("--prompt", "one day", "--prompt", "the red fox")
        words = ("tales", *both, "--steps", "2", "--context", "20", "--json")
        code, output, errors = celosia("host", "--port", port, "run", *words)
        assert code == 0, errors
        report = json.loads(output)
        assert (report["mismatches"], report["tensors"]) == (0, 4)
        assert report["tokens_per_second"] * report["mean_cycles_per_token"] == pytest.approx(21e6)
        wanted = celosia("run", *words, "--config", "small", "--sim", "golden")
        assert report["texts"] == json.loads(wanted[1])["texts"]
        words = ("selftest", "--programs", "1", "--json")
        code, output, errors = celosia("host", "--port", port, *words)
        assert code == 0, output + errors
        report = json.loads(output)
        assert report["mismatches"] == 0
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
    board = with_sdram(get_board("tang_nano_9k"))
    contents = tmp_path / "image.bin"
    contents.write_bytes(compile_digits("digits", board.config).image.tobytes())
    held = ("--contents", str(contents))
    with simulated_board("--board", board.name, "--memory", "sdram", *held) as port:
        words = ("run", "digits", "--count", "1", *held, "--json")
        code, output, errors = celosia("host", "--port", port, *words)
        assert code == 0, errors
        assert json.loads(output)["mismatches"] == 0
        words = ("run", "tales", "--prompt", "o", "--steps", "2", "--context", "64", "--json")
        code, output, errors = celosia("host", "--port", port, *words)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["tensors"], report["config"]) == (0, 2, board.name)
    assert report["cycles_per_token"] < 240_000
