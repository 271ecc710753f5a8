"""Options of the commands that are about a board."""

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
    """Add ``--board``, ``--config`` and ``--set``; :func:`resolve_board` takes their values."""
    config = click.option(
        "--config",
        "source",
        metavar="NAME_OR_TOML",
        help=f"A TOML file or one of {', '.join(PRESETS)}; without it the board's own machine.",
    )
    return board_option(config(override_option(command)))


def resolve_board(
    name: str, source: str | None, overrides: tuple[str, ...]
) -> tuple[Board, Config]:
    """Return the board that the options name, and its machine's configuration."""
    board = get_board(name)
    changes = list(overrides)
    return board, board.config.override(changes) if source is None else load(source, changes)
