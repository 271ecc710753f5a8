"""Build bitstreams for boards, and connect to boards."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from celosia.arch.arguments import checked
from celosia.arch.config import Config
from celosia.arch.support.writing import check_folder, write_files
from celosia.fpga.boards import get_board
from celosia.fpga.build import Task
from celosia.fpga.device import Device
from celosia.fpga.pll import checked_clock
from celosia.fpga.spi_port import FTDI
from celosia.fpga.top import BAUD

REPORT = "report.json"
"""File name of the report."""


@checked(memory_bytes=1, seeds=1)
def build(
    config: Config | None = None,
    *,
    board: str,
    out: str | Path,
    clock_mhz: float | None = None,
    memory_bytes: int | None = None,
    seeds: int = 1,
) -> dict[str, Any]:
    """Synthesize, place and route a machine for a board; return the report as a dictionary.

    ``config`` is the machine's configuration, by default the board's. The bitstream, the report,
    the floorplan, the Verilog, the constraints and the logs are written to the folder ``out``.
    ``clock_mhz`` is the target frequency (MHz), by default the board's. ``memory_bytes`` is the
    size of the external memory (bytes), which is made of block RAM; by default the board's. Place
    and route runs once for each of ``seeds`` seeds, and the fastest result is used.

    Raises :class:`InputError` if the board is unknown, the machine does not fit it, or the folder
    cannot be written, and :class:`RunError` if a tool fails.
    """
    target, folder = get_board(board, "uart"), Path(out)
    if clock_mhz is not None:
        checked_clock(clock_mhz)
    if memory_bytes is not None:
        target = replace(target, memory_bytes=memory_bytes)
    check_folder(folder)
    task = Task(
        config=config or target.config, board=target, seeds=range(1, seeds + 1), mhz=clock_mhz
    )
    with tempfile.TemporaryDirectory(prefix="celosia.") as work:
        made = task.build(Path(work), lambda _step, _done, _total: None)
    write_files(folder, made.files | {REPORT: json.dumps(made.report, indent=2)})
    return made.report


SPI = "spi:"
"""Begins the port of a simulated board behind SPI."""


def open_port(port: str, config: Config | None, baud: int = BAUD) -> Device:
    """Connect to the board at a serial or SPI port, and return the machine on the board.

    ``port`` is the port's name: ``ftdi://...`` is an SPI adapter, ``spi:...`` a simulated board
    with SPI, any other name a serial port. ``baud`` is the bit rate of the serial line or SPI (bits
    per second).

    ``config`` is the machine's configuration. If ``config`` is None, the board reports a
    fingerprint (32 bits that identify a configuration). The function then uses the configuration
    with this fingerprint among all presets and all boards' configurations.
    """
    link = "spi" if port.startswith((SPI, FTDI)) else "uart"
    return Device.open(port.removeprefix(SPI), config, baud=baud, link=link)
