"""A board that is not there: the command runs its pins, the host's commands talk to it.

Faults are injected between the host and the board's serial port.
"""

import contextlib
import json
import os
import re
import threading
import time
import tty
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
import serial

import celosia as library
from celosia.arch.config import Config
from celosia.arch.link import Command, fingerprint, request
from celosia.arch.presets import PRESETS, load
from celosia.arch.registers import IDENTITY
from celosia.fpga.boards import get_board, with_sdram
from celosia.fpga.device import Device
from celosia.running import run_files
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.run_inputs import Files
from tests.support.small_model import model_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed"),
]

MEMORY = 1 << 15


class Wire:
    """A serial port of its own that passes every byte to the board's, and what may go wrong."""

    def __init__(self, port: str):
        self._board = serial.Serial(port, timeout=0.05)
        self._far, near = os.openpty()
        tty.setraw(near)
        self.port = os.ttyname(near)
        self._near = near
        self.to_board: Callable[[bytes], bytes] = lambda data: data
        self.to_host: Callable[[bytes], bytes] = lambda data: data
        self._ends = False
        self._threads = [threading.Thread(target=run) for run in (self._down, self._up)]
        for thread in self._threads:
            thread.start()

    def _down(self) -> None:
        os.set_blocking(self._far, False)
        while not self._ends:
            try:
                data = os.read(self._far, 4096)
            except BlockingIOError:
                time.sleep(0.002)
                continue
            except OSError:
                return
            self._board.write(self.to_board(data))

    def _up(self) -> None:
        while not self._ends:
            data = self.to_host(self._board.read(max(1, self._board.in_waiting)))
            with contextlib.suppress(OSError):
                os.write(self._far, data)

    def cut(self) -> None:
        """Pull the plug."""
        self._ends = True
        for thread in self._threads:
            thread.join()
        for file in (self._far, self._near):
            with contextlib.suppress(OSError):
                os.close(file)
        self._board.close()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()


def test_a_model_gives_the_integers_of_the_golden_model(celosia, port: str, tmp_path) -> None:
    model, folder = model_folder(tmp_path), tmp_path / "out"
    given = ("--inputs", model / "inputs.npy")
    assert celosia("compile", model, *given, "--config", "tiny", "--out", folder)[0] == 0
    words = ("run", folder, *given, "--count", "2", "--json")
    code, output, errors = celosia("host", "--port", port, *words)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["tensors"], report["count"]) == (0, 2, 2)
    missed = abs(report["cycles_per_inference"] - report["predicted_cycles"])
    assert missed < 0.01 * report["cycles_per_inference"]


def test_info(celosia, port: str) -> None:
    code, output, _ = celosia("host", "--port", port, "info", "--json")
    assert code == 0
    assert json.loads(output)["config"] == "tiny"
    assert json.loads(output)["memory"] == MEMORY


@pytest.mark.long  # test_cli_micro_board.py does the same on a machine without engines
def test_selftest(celosia, port: str) -> None:
    words = ("selftest", "--programs", "1", "--json")
    code, output, errors = celosia("host", "--port", port, *words)
    assert code == 0, output + errors
    report = json.loads(output)
    assert report["mismatches"] == 0
    assert {"core", "softmax", "norm", "all"} <= set(report["units"])
    assert {unit["result"] for unit in report["units"].values()} == {"pass"}


def test_a_machine_that_is_no_preset_has_a_file_for_its_host(celosia, monkeypatch) -> None:
    """A simulated board without a simulation, whose file is read while it runs."""
    seen = []

    class Running:
        port = "PORT"

        def __init__(self, config: Config):
            self.config = config

        def wait(self) -> None:
            option = re.search(r"--config (\S+)", told[0]) if told else None
            seen.append(option is not None and fingerprint(load(option[1])))

    @contextlib.contextmanager
    def simulated(_board, config, **_given):
        yield Running(config)

    told: list[str] = []
    monkeypatch.setattr("celosia.cli.board.simulated", simulated)
    echo = click.echo
    monkeypatch.setattr(
        "celosia.cli.board.click.echo",
        lambda text, **settings: (
            told.append(text) if "--config" in text else None,
            echo(text, **settings),
        ),
    )
    words = ("board", "--board", "icebreaker", "--config", "tiny", "--memory", "16384")
    assert celosia(*words, "--set", "rows=3")[:2] == (0, "PORT\n")
    other = PRESETS["tiny"].replace(
        rows=3, registered=get_board("icebreaker").config.control.registered
    )
    assert seen[-1] == fingerprint(other)


@pytest.mark.parametrize("words", [("info",), ("run", "digits"), ("selftest",)])
def test_a_command_tells_its_options_without_a_port_and_does_nothing_else(celosia, words) -> None:
    code, output, errors = celosia("host", *words, "--help")
    assert (code, errors) == (0, "")
    assert "--json" in output
    assert celosia("host", *words) == (2, "", "celosia: Missing option '--port'.\n")


def test_damaged_bytes_are_sent_again(port: str, tmp_path: Path) -> None:
    def damaging(seed: int, least: int, most: int) -> Callable[[bytes], bytes]:
        rng = np.random.default_rng(seed)
        left = int(rng.integers(least, most))

        def damage(data: bytes) -> bytes:
            nonlocal left
            damaged = bytearray(data)
            for place in range(len(damaged)):
                left -= 1
                if not left:
                    damaged[place] ^= 0x10
                    left = int(rng.integers(least, most))
            return bytes(damaged)

        return damage

    with Wire(port) as wire:
        device = Device.open(wire.port, answer_seconds=2.0)
        wire.to_board, wire.to_host = damaging(1, 400, 1600), damaging(2, 900, 1800)
        data = np.random.default_rng(3).bytes(2000)
        device.write_memory(0, data)
        assert device.repeated > 0, "nothing was damaged"
        assert device.read_memory(0, len(data)) == data
        before = device.repeated
        model = model_folder(tmp_path)
        files = Files(inputs=model / "inputs.npy")
        ran = run_files(str(model), PRESETS["tiny"], device, files, count=1, memory_bytes=MEMORY)
        assert ran.figures["mismatches"] == 0
        assert device.repeated > before, "nothing was damaged"
        device.close()


def test_a_cut_connection_is_told(port: str) -> None:
    with Wire(port) as wire:
        device = Device.open(wire.port)
        device.write_memory(0, bytes(2000))
        wire.cut()
        with pytest.raises(RuntimeError, match=rf"^The connection to {wire.port} was cut: "):
            device.write_memory(0, bytes(2000))
    again = Device.open(port)
    assert again.read_register("ID") == IDENTITY
    again.close()


def test_a_host_that_dies_in_the_middle_of_a_transfer_is_survived(port: str) -> None:
    first = Device.open(port)
    first.write_memory(0, b"as it was")
    first.close()
    frame = request(Command.WRITE_MEMORY, 5, 300, 0, bytes(300))
    for end in (3, 100, len(frame) - 1):
        dying = serial.Serial(port)
        dying.write(frame[:end])
        dying.close()
        next_one = Device.open(port)
        assert next_one.read_memory(0, 9) == b"as it was"
        next_one.close()


def test_a_host_of_another_version_or_configuration_is_refused(celosia, port: str) -> None:
    code, output, errors = celosia("host", "--port", port, "--config", "odd", "info")
    assert (code, output) == (1, "")
    assert errors.startswith(f"celosia: The bitstream on {port} has another configuration")
    assert errors.count("\n") == 1


def test_ports_that_cannot_be_used_are_refused(celosia, port: str) -> None:
    code, output, errors = celosia("host", "--port", "/dev/absent", "info")
    assert (code, output) == (2, "")
    assert errors == (
        "celosia: There is no serial port /dev/absent; connect the board, and name its port with "
        "--port\n"
    )
    with serial.Serial(port, exclusive=True):
        code, _, errors = celosia("host", "--port", port, "info")
    assert code == 2
    assert errors == (
        f"celosia: Serial port {port} is used by another program; end that one first\n"
    )


@pytest.mark.long  # test_cli_bench_pins.py has this memory, test_cli_micro_board.py the options
def test_a_model_runs_out_of_the_sdram_at_the_pins(celosia, simulated_board, tmp_path) -> None:
    board, folder = with_sdram(get_board("ulx3s_25f")), tmp_path / "digits"
    library.compile(library.load("digits"), board.config).save(folder)
    held = ("--contents", str(folder / "image.bin"))
    with simulated_board("--board", board.name, "--memory", "sdram", *held) as name:
        words = ("run", folder, "--count", "1", *held, "--json")
        code, output, errors = celosia("host", "--port", name, *words)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["tensors"], report["config"]) == (0, 1, "ulx3s_25f")


def test_contents_without_a_memory_are_refused(celosia, tmp_path) -> None:
    code, _, errors = celosia("board", "--board", "ulx3s_25f", "--contents", str(tmp_path / "no"))
    assert (code, errors) == (2, "celosia: Option --contents needs --memory sdram\n")
    words = ("--board", "ulx3s_25f", "--memory", "sdram", "--contents", str(tmp_path / "no"))
    code, _, errors = celosia("board", *words)
    assert code == 2
    assert errors == f"celosia: Cannot read {tmp_path / 'no'}: No such file or directory\n"


@pytest.mark.long
def test_the_largest_board_gives_the_integers_of_the_golden_model(
    celosia, simulated_board, tmp_path
) -> None:
    folder = tmp_path / "digits"
    assert celosia("compile", "digits", "--config", "ulx3s_85f", "--out", folder)[0] == 0
    with simulated_board("--board", "ulx3s_85f") as name:
        words = ("run", folder, "--count", "20", "--json")
        code, output, errors = celosia("host", "--port", name, *words)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["tensors"], report["count"]) == (0, 20, 20)
