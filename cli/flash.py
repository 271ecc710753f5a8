"""celosia flash: load a bitstream into a board."""

from pathlib import Path

import click

from cli.board_options import board_option
from cli.paths import FILE
from fpga.boards import get_board
from fpga.flash import find_bitstream, load_command
from fpga.flash import flash as load


@click.command()
@board_option
@click.option(
    "--from",
    "folder",
    type=FILE,
    required=True,
    help="Folder that celosia build wrote to.",
)
def flash(name: str, folder: Path) -> None:
    """Load the bitstream of a build into a board, through the board's usual loader."""
    board = get_board(name)
    file = find_bitstream(board, folder)
    load(load_command(board, file), board)
    click.echo(f"{file} is in board {board.name}")
