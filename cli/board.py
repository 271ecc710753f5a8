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


def board_top(config: Config, clock: int, memory_bytes: int, link: str = "uart") -> BoardTop:
    """Return a top level whose link is as fast as can be simulated."""
    return BoardTop(
        config,
        clock=clock,
        memory_bytes=memory_bytes,
        link=link,
        divisor=DIVISOR,
        timeout=TIMEOUT,
    )


@click.command()
@board_options
def board(
    name: str,
    source: str | None,
    overrides: tuple[str, ...],
    link: str,
    memory_bytes: int | None,
) -> None:
    """Simulate a board, to its pins, until it is interrupted.

    The first line of output is the path of its port, for celosia host --port. With --link spi the
    port is one of celosia host --link spi: for each byte that is written, the one that came back
    can be read.
    """
    # Shells let what they run in the background ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found, config = resolve_board(name, source, overrides, link, memory_bytes)
    top = board_top(config, round(found.target_mhz * 1e6), found.memory_bytes, link)
    click.echo("Building the simulation, unless it is kept from before", err=True)
    with SimulatedBoard(top, divisor=DIVISOR, timeout=TIMEOUT) as simulated:
        click.echo(simulated.port)
        simulated.wait()
