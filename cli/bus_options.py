"""Options for a generated module's name, and what an accelerator's ports are behind."""

import re

import click
from amaranth.lib.wiring import Component

from arch.config import Config
from arch.errors import InputError
from cli.options import grouped
from generators.verilog.units import BUSES, CONTROL_BUSES, make_accelerator
from tb.plain_testbench import Attachment

_OPTIONS = (
    click.option(
        "--bus",
        default="native",
        show_default=True,
        metavar="BUS",
        help=f"What the accelerator's external memory is behind: {', '.join(BUSES)}.",
    ),
    click.option(
        "--bus-addr-width",
        "addr_width",
        type=int,
        default=32,
        show_default=True,
        help="Width of a byte address of the bus, in bits.",
    ),
    click.option(
        "--bus-base",
        "base",
        default="0",
        show_default=True,
        metavar="ADDRESS",
        help="Bus address of the first byte of external memory, as 0x80000000.",
    ),
    click.option(
        "--control",
        default="native",
        show_default=True,
        metavar="BUS",
        help=f"What the accelerator's host port is behind: {', '.join(CONTROL_BUSES)}.",
    ),
)


top_option = click.option(
    "--top",
    metavar="NAME",
    help="Name of the top module, and begin of those below.  [default: celosia_ and the unit]",
)


def _attachment(bus: str, addr_width: int, base: str, control: str) -> Attachment:
    try:
        return Attachment(control, bus, addr_width, int(base, 0))
    except ValueError:
        raise InputError(f"Base of external memory must be an integer, not {base!r}") from None


attachment_options = grouped("attachment", _attachment, *_OPTIONS)
"""Adds options for the buses; the command gets them as ``attachment``."""


def attached(config: Config, attachment: Attachment) -> Component:
    """Return the accelerator with its ports behind buses.

    Raises :class:`InputError` as :func:`generators.verilog.units.make_accelerator`.
    """
    it = attachment
    return make_accelerator(config, it.bus, it.addr_width, it.base, it.control)


def check_module(option: str, name: str | None) -> None:
    """Raise :class:`InputError` where a name is given that no module of Verilog can have."""
    if name is not None and not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise InputError(
            f"Option {option} must be letters, digits and underscores, no digit first, not {name!r}"
        )
