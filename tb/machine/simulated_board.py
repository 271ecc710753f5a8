"""Simulation of a board's top level, with a pseudo-terminal in place of the serial port."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, Self

from amaranth.lib.wiring import Component, Signature

from celosia.arch.config import Config
from celosia.arch.ddr3 import Ddr3Chip
from celosia.arch.errors import RunError
from celosia.arch.flash import BOARD_NS, FlashBoot
from celosia.arch.psram import PsramChip
from celosia.arch.sdram import SdramChip
from celosia.arch.support.cache import run_folder
from celosia.arch.support.process import tail
from celosia.tb.devices import data_sheets
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.simulated import end_simulation
from celosia.tb.machine.toolchain import Runtime, check_simulator, environment

_SOURCE = Path(__file__).parent / "harness" / "board.cpp"
_CHIPS = tuple(
    Path(__file__).parent / "harness" / name
    for name in ("sdram.h", "traffic.h", "ddr3.h", "psram.h", "flash.h")
)
# Signals that the harness watches, and those that it records in a file.
_WATCHED = "`verilator_config\n" + "".join(
    f'public_flat_rd -module "top_SdramController" -var "{half}__*"\n' for half in ("read", "write")
)
_REACHED = '`verilator_config\npublic_flat_rw -module "litedram_core" -var "mem*"\n'
_FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert")
_QUIET = ("-Wno-lint", "-Wno-style", "--output-split", "20000")


@dataclass(frozen=True)
class ModelledDdr3:
    """The DDR3 memory of a simulated board, as a Verilog model.

    The model stores its banks in Verilog arrays ``mem``, ``mem_1`` and so on, to which the
    simulation writes initial contents.
    """

    chip: Ddr3Chip
    around: Callable[[str, str], str]
    """Function of a board's Verilog and its top module's name; returns Verilog with a new top
    module ``top`` that contains the board and the memory."""


class Top(Protocol):
    """Interface of a board's top level: a component such as ``celosia.fpga.top.BoardTop``."""

    config: Config
    clock: int
    """The machine's clock (Hz); if it breaks a timing rule of a chip, the simulation ends."""
    divisor: int
    """Clock cycles per bit of the serial line, or per half bit of SPI."""
    timeout: int
    """Cycles after which the link drops an incomplete request."""
    sdram: SdramChip | None
    psram: PsramChip | None
    flash: FlashBoot | None
    """The chips on the board's pins; None for a chip that the board lacks."""
    signature: Signature


def build_board(top: Top, ddr3: ModelledDdr3 | None = None) -> Path:
    """Return the path of the program that simulates a board, from the cache if possible.

    ``ddr3`` is a model of a DDR3 memory at the memory ports of ``top``. Raises :class:`InputError`
    if Verilator or a C++ compiler is missing, and :class:`RunError` if the build fails.
    """
    check_simulator("verilator")
    assert isinstance(top, Component)
    verilog = kept_verilog(top, "top" if ddr3 is None else "machine")
    clock, flash = float(top.clock), top.flash
    source = _SOURCE.read_text(encoding="utf-8")
    models = {chip.name: chip.read_text(encoding="utf-8") for chip in _CHIPS}
    flags = ["-CFLAGS", "-DSPI"] if "sck" in top.signature.members else []
    reached = ""
    if top.sdram is not None:
        values = data_sheets.SDRAM[top.sdram.name].figures(1e9 / clock)
        values |= {"CLOCK": clock, "LAST": top.config.memory.addr_width}
        flags += ["-CFLAGS", " ".join(f"-DSDRAM_{name}={value}" for name, value in values.items())]
        reached = _WATCHED
    if ddr3 is not None:
        verilog = ddr3.around(verilog, "machine")
        chip = {name: value for name, value in asdict(ddr3.chip).items() if name != "name"}
        flags += ["-CFLAGS", " ".join(f"-DDDR3_{name.upper()}={v}" for name, v in chip.items())]
        flags += ["-Wno-COMBDLY", "-Wno-fatal"]
        reached = _REACHED
    if top.psram is not None:
        chip = data_sheets.PSRAM[top.psram.name].figures()
        chip |= {"dies": top.psram.dies, "clock": clock}
        flags += ["-CFLAGS", " ".join(f"-DPSRAM_{name.upper()}={v}" for name, v in chip.items())]
    if flash is not None:
        chip = asdict(data_sheets.FLASH[flash.chip.name])
        chip = {
            name: value for name, value in chip.items() if name not in ("source", "seen", "qpi")
        }
        chip |= {"lanes": flash.lanes, "addr": flash.addr, "clock": clock, "board_ns": BOARD_NS}
        flags += ["-CFLAGS", " ".join(f"-DFLASH_{name.upper()}={v}" for name, v in chip.items())]
    words = [*flags, "-Mdir", ".", "-o", "board", *_FLAGS, *_QUIET, "board.cpp"]
    words += ["reached.vlt", "top.v"] if reached else ["top.v"]
    texts = {"board.cpp": source, **models, "reached.vlt": reached}
    work = "Build of the board's simulation"
    return Runtime("harness").build("board", words, verilog, texts, work=work) / "board"


class SimulatedBoard:
    """A running simulation of a board's top level ``top``; ``port`` is the path of its serial port.

    The files ``contents`` and ``image`` have the initial contents of the board's memory and of its
    flash. Raises the errors of :func:`build_board`, or :class:`RunError` if the simulation does not
    start.
    """

    def __init__(
        self,
        top: Top,
        *,
        contents: Path | None = None,
        image: Path | None = None,
        ddr3: ModelledDdr3 | None = None,
    ):
        held = ["" if file is None else str(file.resolve()) for file in (contents, image)]
        program = build_board(top, ddr3)
        self._log = run_folder("board") / "simulation.log"
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [str(program), str(top.divisor), str(top.timeout), *held],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
                encoding="utf-8",
            )
        assert self._process.stdout is not None
        self.port = self._process.stdout.readline().strip()
        if not self.port:
            code, text = self._process.wait(), tail(self._log)
            self.close()
            raise RunError(f"The board's simulation ended with exit code {code}\n{text}")

    def log(self) -> str:
        """Return the text that the simulation has printed to its log so far."""
        return self._log.read_text(encoding="utf-8")

    def traffic(self) -> dict[str, int]:
        """Return counts of the SDRAM's traffic in the last run, by name; empty without an SDRAM.

        - ``cycles``: all cycles of the run.
        - ``reading_cycles``: cycles in which only reads are pending and the machine accepts all
          words.
        - ``other_cycles``: all other cycles with pending reads or writes.
        - ``reading_columns``: words that the SDRAM transfers in the ``reading_cycles``.
        - ``other_columns``: words that the SDRAM transfers in the ``other_cycles``.
        """
        lines = [line for line in self.log().splitlines() if line.startswith("{")]
        counts: dict[str, int] = json.loads(lines[-1]) if lines else {}
        return counts

    def wait(self) -> None:
        """Wait until the simulation's process ends; then always raise :class:`RunError`.

        The error's message has the exit code, and the last lines that the simulation has printed.
        """
        code = self._process.wait()
        raise RunError(f"The board's simulation ended with exit code {code}\n{tail(self._log)}")

    def close(self) -> None:
        """End the simulation and remove its log."""
        end_simulation(self._process, self._log)

    def __enter__(self) -> Self:
        """Return the simulation."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the simulation."""
        self.close()
