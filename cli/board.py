"""celosia board: simulate a board's top level, with a serial or SPI port for a host."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.link import fingerprint
from celosia.boards import SPI
from celosia.cli.board_options import board_options, flashed
from celosia.cli.paths import FILE, read_bytes
from celosia.cli.tree import Command
from celosia.fpga.boards import FLASHES, Board
from celosia.fpga.ddr3.around import modelled
from celosia.fpga.ddr3.core import Core, make_core
from celosia.fpga.device import Device, known_config
from celosia.fpga.flash import check_image
from celosia.fpga.top import BoardTop
from celosia.tb.machine.simulated_board import ModelledDdr3, SimulatedBoard

DIVISOR = 4
"""Cycles of a bit: the fewest that a receiver supports, so that little time is simulated."""

TIMEOUT = 1 << 15
"""Cycles after which an incomplete request is given up: some hundredths of a second here."""


def simulated(
    board: Board, config: Config, *, contents: Path | None = None, image: Path | None = None
) -> SimulatedBoard:
    """Return a running simulation of a board, whose host link has the highest possible bit rate.

    ``contents`` is the path of a file with the initial content of the board's SDRAM or PSRAM.
    ``image`` is the path of a file with the content of the board's flash. None stands for no file.
    """
    core = None
    if board.ddr3 is not None:
        core = make_core(board.ddr3, board.part, board.clock_mhz, board.target_mhz, model=True)
    top = BoardTop(
        config,
        clock=round(board.target_mhz * 1e6),
        memory_bytes=board.memory_bytes,
        sdram=board.sdram,
        ddr3=None if core is None else core.start,
        psram=board.psram,
        flash=board.flash,
        link=board.link,
        divisor=DIVISOR,
        timeout=TIMEOUT,
    )
    model = None if core is None else _modelled(core)
    return SimulatedBoard(top, contents=contents, image=image, ddr3=model)


def _modelled(core: Core) -> ModelledDdr3:
    chip = core.start.chip

    def around(machine: str, name: str) -> str:
        return modelled(machine, name, chip, "ddr3_", core.verilog, "top")

    return ModelledDdr3(chip, around)


@contextlib.contextmanager
def opened(
    board: Board, config: Config, image: bytes = b""
) -> Iterator[tuple[SimulatedBoard, Device]]:
    """Simulate a board in a ``with`` block; yield the simulation and a :class:`Device` object.

    The :class:`Device` object controls the machine on the board. ``image`` is the initial content
    of the board's memory chip, or empty for a memory of zeros. If the data of the host's first
    write are already in ``image``, the host does not send this write.
    """
    with tempfile.TemporaryDirectory(prefix="celosia.") as folder:
        contents = Path(folder) / "image.bin"
        contents.write_bytes(image)
        with simulated(board, config, contents=contents if image else None) as running:
            device = Device.open(running.port, config, link=board.link)
            device.contents = image
            if image:
                device.read_memory(0, 1)  # waits until a DDR3 chip has been started
            yield running, device
            device.close()


@click.command(cls=Command, example="--board ulx3s_85f")
@board_options
@click.option("--contents", type=FILE, help="A file that the SDRAM or PSRAM holds from the start.")
@click.option(
    "--flash",
    metavar="KIND:IMAGE",
    help=f"Begin at power-on with an image that celosia flash wrote: {', '.join(FLASHES)}.",
)
def board(
    target: tuple[Board, Config],
    contents: Path | None,
    flash: str | None,
) -> None:
    """Simulate a board, including its pins, until the command is interrupted.

    The first line of output is the port's name, for celosia host --port. With --link spi the name
    begins with spi:, followed by a path. As on an SPI bus, each byte written to this path returns a
    byte.

    The command celosia host knows the machines of presets and of boards. For any other machine,
    celosia board writes a file with the configuration. It then prints the option --config with the
    path of this file; give this option to celosia host.

    With --flash the board first runs the model in the flash image.
    """
    target_board, config = target
    image = None
    if flash is not None:
        kind, colon, name = flash.partition(":")
        if not colon:
            raise InputError(f"Option --flash takes KIND:IMAGE as qspi:image.bin, not {flash!r}")
        target_board, config = flashed(target, kind)
        image = Path(name)
        check_image(target_board, len(read_bytes(image)))
    if contents is not None:
        if not target_board.peak_bytes:
            raise InputError("Option --contents needs --memory sdram")
        if len(read_bytes(contents)) > target_board.memory_bytes:
            raise InputError(
                f"File {contents} has more than the {target_board.memory_bytes} bytes of memory"
            )
    click.echo("Building the simulation, unless it is kept from before", err=True)
    with (
        simulated(target_board, config, contents=contents, image=image) as running,
        tempfile.TemporaryDirectory(prefix="celosia.") as folder,
    ):
        machine = config.replace(trace=False)
        if known_config(fingerprint(machine)) is None:
            path = Path(folder) / "config.toml"
            path.write_text(machine.to_toml(), encoding="utf-8")
            click.echo(f"celosia host needs --config {path} while this board runs", err=True)
        click.echo(running.port if target_board.link == "uart" else f"{SPI}{running.port}")
        running.wait()
