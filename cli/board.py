"""celosia board: a board's complete top level in a simulation, behind a serial port."""

import click

from cli.options import config_options, resolve
from fpga.top import BoardTop
from tb.board import SimulatedBoard

CLOCK = 25_000_000
"""What the simulated board says that its clock is (Hz)."""

DIVISOR = 4
"""Cycles of a bit: as few as a receiver can do with, so that little time is simulated."""

TIMEOUT = 1 << 15
"""Cycles after which a request that stopped is given up: some hundredths of a second here."""


def board_top(config, memory_bytes: int) -> BoardTop:
    """Return a top level whose serial line is as fast as can be simulated."""
    return BoardTop(
        config, clock=CLOCK, memory_bytes=memory_bytes, divisor=DIVISOR, timeout=TIMEOUT
    )


@click.command()
@config_options("tiny")
@click.option(
    "--memory",
    "memory_bytes",
    type=int,
    default=1 << 16,
    show_default=True,
    help="External memory on the chip, in bytes.",
)
def board(source: str, overrides: tuple[str, ...], memory_bytes: int) -> None:
    """Simulate a board, serial line and all, until it is interrupted.

    The first line of output is the path of its serial port, for celosia host --port.
    """
    top = board_top(resolve(source, overrides), memory_bytes)
    with SimulatedBoard(top, divisor=DIVISOR, timeout=TIMEOUT) as simulated:
        click.echo(simulated.port)
        simulated.wait()
