"""The option --batch, and the conversion of command options to options of the encoder compiler.

--batch is the number of inputs that one run of the machine processes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from celosia.arch.config import Config
from celosia.cli.format_options import RANGE_KEYS, Formats
from celosia.generators.lower.options import Options

batch_option = click.option(
    "--batch", type=int, default=1, show_default=True, help="Inputs of one run of the machine."
)
RANGES = tuple(key.name for key in RANGE_KEYS.values())
"""Parameters of the ranges and scales of an encoder."""


def encoder_options(
    formats: Formats, config: Config, values: Mapping[str, Any] | None = None
) -> Options:
    """Return the compiler's options for an encoder, from the options of a command.

    ``formats`` has the number formats; its field ``loss`` does not change the result. ``values`` is
    a dictionary of the command's parameters ``percentile``, ``balance`` and ``batch``; None selects
    their defaults. The program skips zero weights if the machine with the configuration ``config``
    has a zero-skip unit.
    """
    options = Options(**formats.quantization, sparse=config.sparse_lanes > 0)
    if values is None:
        return options
    return replace(
        options,
        percentile=values["percentile"],
        balance=values["balance"],
        batch=values.get("batch", 1),
    )
