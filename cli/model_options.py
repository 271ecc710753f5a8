"""Options for how a model is made integers."""

import functools
from typing import Any

import click

from cli.options import WEIGHT_OPTIONS, Command
from generators.compiler import Options

_OPTIONS = (
    click.option(
        "--percentile", default=100.0, show_default=True, help="Share in a range (percent)."
    ),
    click.option(
        "--balance", default=0.7, show_default=True, help="How far columns fill ranges, 0 to 1."
    ),
    click.option(
        "--scales",
        type=click.Choice(["channel", "tensor"]),
        default="channel",
        show_default=True,
        help="What of INT8 weights has a scale of its own.",
    ),
    *WEIGHT_OPTIONS,
    click.option(
        "--batch", type=int, default=1, show_default=True, help="Inputs of one run of the machine."
    ),
)


def model_options(command: Command) -> Command:
    """Add options for the compiler; the command gets them as ``options``."""

    @functools.wraps(command)
    def with_options(
        percentile: float,
        balance: float,
        scales: str,
        weights: str,
        group: int,
        batch: int,
        **given: Any,
    ) -> Any:
        found = Options(
            percentile=percentile,
            balance=balance,
            per_channel=scales == "channel",
            weights=weights,
            group=group,
            batch=batch,
        )
        return command(options=found, **given)

    wrapped: Command = with_options
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
