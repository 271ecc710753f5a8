"""Options for how a model is made integers."""

from dataclasses import replace

import click

from arch.config import Config
from cli.options import (
    ACTIVATIONS_OPTION,
    FUNCTIONS_OPTION,
    LOSS_OPTION,
    RANK_OPTION,
    WEIGHT_OPTIONS,
    WIDE,
    asked_format,
    equipped,
    grouped,
)
from cli.output import progress
from generators.compiler import Options
from generators.mixtures import mix_digits
from generators.quantize.options import ENCODER_BALANCE

_OPTIONS = (
    click.option(
        "--percentile", default=100.0, show_default=True, help="Share in a range (percent)."
    ),
    click.option(
        "--balance",
        type=float,
        help="How far columns fill ranges, 0 to 1: 0.7, or 0 for weights trained for their format.",
    ),
    click.option(
        "--scales",
        type=click.Choice(["channel", "tensor"]),
        default="channel",
        show_default=True,
        help="What of INT8 weights has a scale of its own.",
    ),
    *WEIGHT_OPTIONS,
    RANK_OPTION,
    LOSS_OPTION,
    FUNCTIONS_OPTION,
    ACTIVATIONS_OPTION,
    click.option(
        "--batch", type=int, default=1, show_default=True, help="Inputs of one run of the machine."
    ),
    click.option("--sparse", is_flag=True, help="Skip zero weights where that is faster."),
)


def _options(
    percentile: float,
    balance: float | None,
    scales: str,
    weights: str,
    group: int,
    low_rank: int,
    functions: str,
    activations: str,
    batch: int,
    sparse: bool,
    loss: float | None,
) -> tuple[Options, float | None]:
    found = Options(
        percentile=percentile,
        balance=balance,
        per_channel=scales == "channel",
        weights=asked_format(weights, loss),
        group=group,
        low_rank=low_rank,
        wide_functions=functions == WIDE,
        activations=activations,
        batch=batch,
        sparse=sparse,
    )
    return found, loss


model_options = grouped("asked", _options, *_OPTIONS)
"""Adds options for the compiler; the command gets them as ``asked``, for :func:`searched`."""


def searched(
    model: str, config: Config, asked: tuple[Options, float | None]
) -> tuple[Options, Config]:
    """Return options with the formats of weights that lose so much at most, and say which.

    The configuration has these formats, if it had none.
    """
    options, loss = asked
    if loss is not None:
        options = _mixed(model, config, options, loss)
    return options, equipped(config, options)


def _mixed(model: str, config: Config, options: Options, loss: float) -> Options:
    if options.balance is None:
        options = replace(options, balance=ENCODER_BALANCE)
    with progress("Formats of weights") as update:
        found = mix_digits(model, config, options, loss, update)
    click.echo(f"celosia: {found.summary}", err=True)
    return replace(options, chosen=found.chosen)
