"""Options for an encoder's integers."""

from dataclasses import dataclass, replace

import click

from celosia.arch.config import Config
from celosia.cli.format_options import Formats
from celosia.cli.options import grouped
from celosia.cli.output import progress, say
from celosia.generators.lower.encoder_compiler import Options
from celosia.generators.lower.equipment import equipped
from celosia.generators.studies.mixtures import search_formats

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
"""Adds options for the compiler, as ``ranges`` for :func:`encoder_options`."""


def encoder_options(formats: Formats, ranges: ModelOptions | None = None) -> Options:
    """Return the compiler's options, before any search; the default ones without ``ranges``."""
    options = Options(**formats.quantization, sparse=formats.sparse)
    if ranges is None:
        return options
    return replace(
        options,
        percentile=ranges.percentile,
        balance=ranges.balance,
        per_channel=ranges.scales == "channel",
        batch=ranges.batch,
    )


def searched(
    model: str, config: Config, formats: Formats, ranges: ModelOptions | None = None
) -> Options:
    """Return options with the formats of weights within the allowed loss, and print them."""
    options = encoder_options(formats, ranges)
    if formats.loss is None:
        return options
    machine = equipped(config, options)
    options, summary = search_formats(model, None, machine, options, formats.loss, progress)
    say(f"celosia: {summary}", err=True)
    return options
