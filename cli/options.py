"""Options that several commands share."""

from collections.abc import Callable
from typing import Any

import click

from arch.config import PRESETS, Config, load
from tb.machines import SIMULATORS

Command = Callable[..., Any]

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)
simulator_option = click.option(
    "--sim",
    "simulator",
    default="verilator",
    show_default=True,
    metavar="NAME",
    help=f"What runs the machine: {', '.join(SIMULATORS)}.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of random data.",
)


def config_options(default: str) -> Callable[[Command], Command]:
    """Add ``--config`` and ``--set``; :func:`resolve` makes a configuration of their values."""
    config = click.option(
        "--config",
        "source",
        default=default,
        show_default=True,
        metavar="NAME_OR_TOML",
        help=f"A TOML file or one of {', '.join(PRESETS)}.",
    )
    override = click.option(
        "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change one field."
    )
    return lambda command: config(override(command))


def resolve(source: str, overrides: tuple[str, ...]) -> Config:
    """Return the configuration that the options name."""
    return load(source, list(overrides))
