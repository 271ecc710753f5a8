"""Options for how an encoder is made integers."""

from dataclasses import dataclass, replace

import click

from celosia.arch.config import Config
from celosia.cli.format_options import Formats
from celosia.cli.options import grouped
from celosia.cli.output import progress, say
from celosia.generators.lower.encoder_compiler import Options
from celosia.generators.lower.equipment import equipped
from celosia.generators.quantize.options import ENCODER_BALANCE
from celosia.generators.studies.mixtures import mix_digits

_OPTIONS = (
    click.option(
        "--batch", type=int, default=1, show_default=True, help="Inputs of one run of the machine."
    ),
)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Ranges, scales and runs of an encoder."""

    percentile: float
    balance: float | None
    scales: str
    batch: int


model_options = grouped("ranges", ModelOptions, *_OPTIONS)
"""Adds options for the compiler; the command gets them as ``ranges``, for :func:`searched`."""


def searched(
    model: str, config: Config, formats: Formats, ranges: ModelOptions | None = None
) -> Options:
    """Return options with the formats of weights that lose so much at most, and say which.

    Without ``ranges`` these are the default ones.
    """
    options = Options(**formats.quantization, sparse=formats.sparse)
    if ranges is not None:
        options = replace(
            options,
            percentile=ranges.percentile,
            balance=ranges.balance,
            per_channel=ranges.scales == "channel",
            batch=ranges.batch,
        )
    if formats.loss is None:
        return options
    if options.balance is None:
        options = replace(options, balance=ENCODER_BALANCE)
    with progress("Formats of weights") as update:
        found = mix_digits(model, equipped(config, options), options, formats.loss, update)
    say(f"celosia: {found.summary}", err=True)
    return replace(options, chosen=found.chosen)
