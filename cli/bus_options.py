"""Options for a generated module's name, and for the protocols of an accelerator's ports."""

import re

import click
from amaranth.lib.wiring import Component

from celosia.arch.config import Config
from celosia.arch.errors import InputError, check_known
from celosia.cli.options import Adder, as_one_argument
from celosia.generators.verilog.names import check_module_name, check_top_name
from celosia.generators.verilog.units import BUSES, CONTROL_BUSES, make_accelerator
from celosia.tb.models.plain_testbench import Attachment

_OPTIONS = (
    click.option(
        "--bus",
        default="native",
        show_default=True,
        metavar="BUS[:WIDTH][@BASE]",
        help=f"Protocol of the external memory's port: {', '.join(BUSES)}; with the "
        "width of a byte address, 32 without it, and the first one, as axi4:40@0x80000000.",
    ),
    click.option(
        "--control",
        default="native",
        show_default=True,
        metavar="BUS",
        help=f"Protocol of the host port: {', '.join(CONTROL_BUSES)}.",
    ),
)


def add_option(**kinds: str) -> Adder:
    """Return a decorator that adds the option ``--add KIND[,...]`` to a command.

    The option selects files that the command adds to its output. ``kinds`` maps each kind to its
    description in the help. The command gets the set of chosen kinds as ``added``.
    """

    def read(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> set[str]:
        words = {word for text in texts for word in text.split(",")}
        for word in sorted(words):
            check_known("file to --add", word, kinds)
        return words

    about = "; ".join(f"{kind}, {text}" for kind, text in kinds.items())
    return click.option(
        "--add",
        "added",
        multiple=True,
        callback=read,
        metavar="KIND[,...]",
        help=f"Files to add: {about}.",
    )


top_option = click.option(
    "--top",
    metavar="NAME",
    help="Name of the top module, and begin of those below.  [default: celosia_ and the unit]",
)


def _attachment(bus: str, control: str) -> Attachment:
    parts = re.fullmatch(r"([^:@]*)(?::(-?[0-9]{1,9}))?(?:@(\w{1,40}))?", bus)
    if parts is None:
        raise InputError(
            f"Option --bus takes BUS[:WIDTH][@BASE] as axi4:40@0x80000000, not {bus!r}"
        )
    name, width, base = parts.groups()
    if name == "native" and (width or base):
        raise InputError(f"Option --bus {bus} has an address, which is for axi4 or wishbone")
    try:
        return Attachment(control, name, int(width or 32), int(base or "0", 0))
    except ValueError:
        raise InputError(f"Base of external memory must be an integer, not {base!r}") from None


attachment_options = as_one_argument("attachment", _attachment, *_OPTIONS)
"""Adds options for the buses; the command gets them as ``attachment``."""


def attached(config: Config, attachment: Attachment) -> Component:
    """Return the accelerator with bridges from its memory port and host port to buses.

    ``attachment`` gives the bus protocol of each port; a port with the protocol ``native`` has no
    bridge. Raises :class:`InputError` if a protocol is unknown, or the external memory does not fit
    into the bus's addresses.
    """
    it = attachment
    return make_accelerator(config, it.bus, it.addr_width, it.base, it.control)


def check_modules(component: Component | None, top: str | None, prefix: str | None = None) -> None:
    """Raise :class:`InputError` if an option gives an invalid name for a Verilog module.

    ``top`` and ``prefix`` are the values of ``--top`` and ``--prefix``; None means no option. If
    ``component`` is not None, an error is also raised if ``top`` is the name of one of the
    component's ports.
    """
    for option, name in (("--top", top), ("--prefix", prefix)):
        if name is not None:
            check_module_name(f"Option {option}", name)
    if component is not None and top is not None:
        check_top_name("Option --top", top, component)
