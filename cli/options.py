"""Options that several commands share."""

import functools
from collections.abc import Callable
from typing import Any

import click

from arch.config import Config
from arch.errors import InputError
from arch.formats import FORMATS
from arch.presets import PRESETS, load, stated
from generators.quantize.options import INT8, Quantization
from tb.memory_timing import MemoryTiming
from tb.toolchain import MACHINES

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
    help=f"What runs the machine: {', '.join(MACHINES)}.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of random data.",
)


override_option = click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change one field."
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
    return lambda command: config(override_option(command))


_MEMORY_HELP = {
    "latency": "Cycles from a request to external memory to its first word.",
    "interval": "Cycles a word of external memory.",
    "refresh_period": "Cycles from refresh to refresh of external memory; 0 for none.",
    "refresh_cycles": "Cycles of a refresh, in which no word moves.",
}


def memory_options(default: MemoryTiming) -> Callable[[Command], Command]:
    """Add options for external memory's timing; the command gets it as ``timing``."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_timing(**given: Any) -> Any:
            values = {name: given.pop(f"memory_{name}") for name in _MEMORY_HELP}
            return command(timing=MemoryTiming(**values), **given)

        wrapped: Command = with_timing
        for name, meaning in reversed(_MEMORY_HELP.items()):
            value = default.fields()[name]
            option = f"--memory-{name.replace('_', '-')}"
            wrapped = click.option(
                option, type=int, default=value, show_default=True, help=meaning
            )(wrapped)
        return wrapped

    return decorate


UNIT_FIELDS = {
    "softmax": "softmax",
    "addnorm": "norm",
    "table": "activation",
    "rotary": "rotary",
    "argmax": "argmax",
}
"""The field that puts a unit into the accelerator, of units that it may leave out."""


def check_unit(unit: str, config: Config, source: str | None, overrides: tuple[str, ...]) -> None:
    """Raise :class:`InputError` where a unit is asked for that is left out by name.

    What a preset leaves out may be made alone all the same.
    """
    field = UNIT_FIELDS.get(unit)
    if field in stated(source, list(overrides)) and not getattr(config, str(field)):
        raise InputError(f"Unit {unit} is left out: {field} is false")


def resolve(source: str, overrides: tuple[str, ...]) -> Config:
    """Return the configuration that the options name."""
    return load(source, list(overrides))


def equipped(config: Config, options: Quantization) -> Config:
    """Return a configuration that has the weight formats that options ask for, if it had none."""
    if config.formats:
        return config
    asked = dict.fromkeys((options.weights, *options.chosen.values()))
    asked.pop(INT8, None)
    if not asked:
        return config
    return config.replace(weight_formats=",".join(asked), weight_group=options.group)


AUTO = "auto"


def _check_group(context: click.Context, _option: click.Parameter, group: int) -> int:
    """Return the inputs of a group of weights; refuse them for INT8, which has no such scales."""
    if group > 0 and context.params["weights"] == INT8:
        raise InputError(
            f"Option --group {group} needs a format of fewer bits in --weights, which is {INT8}"
        )
    return group


WEIGHT_OPTIONS = (
    click.option(
        "--weights",
        default=INT8,
        is_eager=True,
        show_default=True,
        metavar="FORMAT",
        help=f"Format of the linear layers' weights: {', '.join((INT8, *FORMATS))}, auto.",
    ),
    click.option(
        "--group",
        default=0,
        callback=_check_group,
        show_default=True,
        help="Inputs that share a scale of such weights; 0: outputs have scales alone.",
    ),
)


RANK_OPTION = click.option(
    "--low-rank",
    default=0,
    show_default=True,
    metavar="RANK",
    help="Rank of what is added to weights of fewer bits as two thin INT8 products; 0 for none.",
)


LOSS_OPTION = click.option(
    "--loss",
    type=float,
    help="What --weights auto may lose: points of accuracy, or log-likelihood of a token.",
)


WIDE = "wide"

FUNCTIONS_OPTION = click.option(
    "--functions",
    type=click.Choice(["table", WIDE]),
    default="table",
    show_default=True,
    help="What GELU, SiLU and their like take: INT8 from a table, or INT16, as polynomials.",
)


def asked_format(weights: str, loss: float | None) -> str:
    """Return the format of weights to begin with.

    Raises :class:`InputError` where a search is asked for without a bound, or a bound without it.
    """
    if (weights == AUTO) != (loss is not None):
        raise InputError(
            f"Options --weights {AUTO} and --loss need each other, but weights is {weights} and "
            f"loss {loss}"
        )
    return INT8 if weights == AUTO else weights


def weight_options(command: Command) -> Command:
    """Add options for the format of weights."""
    for option in reversed(WEIGHT_OPTIONS):
        command = option(command)
    return command
