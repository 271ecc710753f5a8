"""celosia board: a board's complete top level in a simulation, behind a serial port."""

import signal

import click

from arch.config import Config
from cli.board_options import board_options, resolve_board
from fpga.top import BoardTop
from tb.board import SimulatedBoard

DIVISOR = 4
"""Cycles of a bit: as few as a receiver can do with, so that little time is simulated."""

TIMEOUT = 1 << 15
"""Cycles after which a request that stopped is given up: some hundredths of a second here."""


def board_top(config: Config, clock: int, memory_bytes: int) -> BoardTop:
    """Return a top level whose serial line is as fast as can be simulated."""
    return BoardTop(
        config, clock=clock, memory_bytes=memory_bytes, divisor=DIVISOR, timeout=TIMEOUT
    )


@click.command()
@board_options
def board(
    name: str, source: str | None, overrides: tuple[str, ...], memory_bytes: int | None
) -> None:
    """Simulate a board, serial line and all, until it is interrupted.

    The first line of output is the path of its serial port, for celosia host --port.
    """
    # Shells let what they run in the background ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found, config = resolve_board(name, source, overrides, memory_bytes)
    top = board_top(config, round(found.target_mhz * 1e6), found.memory_bytes)
    with SimulatedBoard(top, divisor=DIVISOR, timeout=TIMEOUT) as simulated:
        click.echo(simulated.port)
        simulated.wait()
