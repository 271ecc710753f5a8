"""Options of the commands that are about a board."""

from dataclasses import replace

import click

from arch.config import Config
from arch.presets import PRESETS, load
from cli.options import Command, override_option
from fpga.boards import BOARDS, Board, get_board

board_option = click.option(
    "--board",
    "--device",
    "name",
    required=True,
    metavar="BOARD",
    help=f"One of {', '.join(BOARDS)}.",
)


def board_options(command: Command) -> Command:
    """Add ``--board``, ``--config``, ``--set`` and ``--memory`` for :func:`resolve_board`."""
    config = click.option(
        "--config",
        "source",
        metavar="NAME_OR_TOML",
        help=f"A TOML file or one of {', '.join(PRESETS)}; without it the board's own machine.",
    )
    memory = click.option(
        "--memory",
        "memory_bytes",
        type=int,
        help="External memory on the chip, in bytes; without it the board's.",
    )
    return board_option(config(override_option(memory(command))))


def resolve_board(
    name: str, source: str | None, overrides: tuple[str, ...], memory_bytes: int | None
) -> tuple[Board, Config]:
    """Return the board that the options name, and its machine's configuration."""
    board = get_board(name)
    if memory_bytes is not None:
        board = replace(board, memory_bytes=memory_bytes)
    changes = list(overrides)
    return board, board.config.override(changes) if source is None else load(source, changes)
