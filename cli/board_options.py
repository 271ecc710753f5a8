"""Command-line options that select a board, its machine, its memory and its host link."""

from dataclasses import replace

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.latency import HARDWARE_WIDTH
from celosia.arch.presets import PRESETS, load, stated
from celosia.arch.rules import PACKED_WIDTH
from celosia.cli.options import as_one_argument, override_option
from celosia.fpga.boards import BOARDS, FLASHES, LINKS, Board, get_board, with_flash, with_sdram

link_option = click.option(
    "--link",
    default="uart",
    show_default=True,
    metavar="LINK",
    help=f"Link of the host: {', '.join(LINKS)}.",
)


flash_option = click.option(
    "--flash",
    metavar="KIND",
    help="Begin at power-on with the image in the board's flash, read by one lane or four: "
    f"{', '.join(FLASHES)}.",
)


def resolve_board(
    name: str,
    source: str | None,
    overrides: tuple[str, ...],
    link: str,
    memory: str | None,
) -> tuple[Board, Config]:
    """Return the board that command-line options select, and the configuration of its machine.

    ``name``, ``source``, ``overrides``, ``link`` and ``memory`` are the values of ``--board``,
    ``--config``, ``--set``, ``--link`` and ``--memory``. If ``source`` is None, the configuration
    is the board's default. Three of its fields are adapted to the board:

    - ``registered`` and ``packed``, if the user has not set them.
    - ``mem_addr_width``, if ``--config`` is given and the external memory is a memory chip.
    """
    # mem_addr_width is the board's if its memory is a chip. packed becomes true if a multiplier of
    # the device is wide enough for two products. A microcoded machine keeps registered and packed.
    board = get_board(name, link)
    if memory == "sdram":
        board = with_sdram(board)
    elif memory is not None:
        board = replace(board, memory_bytes=_size(memory))
    changes = list(overrides)
    config = board.config.override(changes) if source is None else load(source, changes)
    if board.peak_bytes and source is not None:
        config = config.replace(mem_addr_width=board.config.memory.addr_width)
    if config.micro is None and "registered" not in stated(source, changes):
        config = config.replace(registered=board.config.control.registered)
    narrow = config.element_width <= PACKED_WIDTH or 1 < config.array.pass_width < OPERAND_BITS
    narrow = narrow and config.micro is None
    free = narrow and not {"packed", "multiplier"} & stated(source, changes)
    if free and board.device.family.multiplier_width >= HARDWARE_WIDTH:
        config = config.replace(packed=True)
    return board, config


def flashed(target: tuple[Board, Config], kind: str) -> tuple[Board, Config]:
    """Return a board that runs a model from its flash at power-on, and its machine's configuration.

    ``target`` is a pair: a board and a configuration of its machine. ``kind`` is the flash's read
    mode, such as ``qspi``. If the configuration is the board's default, the returned configuration
    leaves room for the circuit that reads the flash. Any other configuration is returned unchanged.
    """
    board, config = target
    reading_board = with_flash(board, kind)
    return reading_board, reading_board.config if config == board.config else config


def _size(memory: str) -> int:
    try:
        return int(memory)
    except ValueError:
        raise InputError(f"--memory must be a number of bytes or sdram, not {memory!r}") from None


board_option = click.option(
    "--board",
    "name",
    required=True,
    metavar="BOARD",
    help=f"One of {', '.join(BOARDS)}.",
)
"""Adds the option for the board's name, which the command gets as ``name``."""

_OPTIONS = (
    board_option,
    click.option(
        "--config",
        "source",
        metavar="NAME_OR_TOML",
        help=f"A TOML file or one of {', '.join(PRESETS)}; without it the board's own machine.",
    ),
    override_option,
    click.option(
        "--memory",
        metavar="BYTES_OR_SDRAM",
        help="External memory: bytes on the chip, or sdram, the board's; without it the "
        "board's memory on the chip.",
    ),
)
board_options = as_one_argument("target", resolve_board, *_OPTIONS[:3], link_option, *_OPTIONS[3:])
"""Adds options for the board and its machine; the command gets both as ``target``."""
sdram_board_option = as_one_argument(
    "target", lambda name: resolve_board(name, None, (), "uart", "sdram"), board_option
)
"""Adds the option for a board; the command gets the board with its SDRAM and its own machine."""
