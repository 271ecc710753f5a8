"""Options that several commands share."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS, load, stated
from celosia.cli.tree import GENERAL
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.toolchain import MACHINES

Command = Callable[..., Any]
Adder = Callable[[Command], Command]


def added(options: Sequence[Adder], command: Command) -> Command:
    """Return a command with options, which its help shows in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def grouped(name: str, make: Callable[..., Any], *options: Adder) -> Adder:
    """Return what adds options to a command, which gets what ``make`` returns as ``name``.

    ``make`` takes the options' values as arguments of their names.
    """
    taken = inspect.signature(make).parameters

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_group(**given: Any) -> Any:
            made = make(**{each: given.pop(each) for each in taken})
            return command(**{name: made}, **given)

        return added(options, with_group)

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, hidden=True, help=GENERAL["--json"])
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
    hidden=True,
    help=GENERAL["--seed"],
)


override_option = click.option(
    "--set", "overrides", multiple=True, hidden=True, help=GENERAL["--set"]
)


def source_option(default: str) -> Adder:
    """Add ``--config``; :func:`resolve` makes a configuration of it and ``--set``."""
    return click.option(
        "--config",
        "source",
        default=default,
        show_default=True,
        metavar="NAME_OR_TOML",
        help=f"A TOML file or one of {', '.join(PRESETS)}.",
    )


def config_choice(defaults: str) -> Adder:
    """Add ``--config`` and ``--set``; the command gets a function of the default as ``configured``.

    ``defaults`` is what the help says of the default, which depends on the model.
    """

    def make(source: str | None, overrides: tuple[str, ...]) -> Callable[[str], Config]:
        return lambda default: resolve(source or default, overrides)

    option = click.option(
        "--config",
        "source",
        metavar="NAME_OR_TOML",
        help=f"A TOML file or one of {', '.join(PRESETS)}.  [default: {defaults}]",
    )
    return grouped("configured", make, option, override_option)


def config_options(default: str) -> Adder:
    """Add ``--config`` and ``--set``; the command gets the configuration as ``config``."""
    return grouped("config", resolve, source_option(default), override_option)


def resolve(source: str, overrides: tuple[str, ...]) -> Config:
    """Return the configuration that the options name."""
    return load(source, list(overrides))


_MEMORY_HELP = {
    "latency": "Cycles from a request to external memory to its first word.",
    "interval": "Cycles a word of external memory.",
    "refresh_period": "Cycles from refresh to refresh of external memory; 0 for none.",
    "refresh_cycles": "Cycles of a refresh, in which no word moves.",
}


def memory_options(default: MemoryTiming) -> Adder:
    """Add options for external memory's timing; the command gets it as ``timing``."""
    options = (
        click.option(
            f"--memory-{name.replace('_', '-')}",
            name,
            type=int,
            default=default.fields()[name],
            show_default=True,
            help=meaning,
        )
        for name, meaning in _MEMORY_HELP.items()
    )
    return grouped("timing", MemoryTiming, *options)


def size_options(rows: int | None = None) -> Adder:
    """Add the sizes of a product, ``rows`` being the default of its rows, as ``sizes``."""
    return grouped(
        "sizes",
        lambda m, k, n: {"m": m, "k": k, "n": n},
        click.option(
            "--m",
            type=int,
            default=rows,
            required=rows is None,
            show_default=rows is not None,
            help="Rows of the result.",
        ),
        click.option("--k", type=int, required=True, help="Length of the sums."),
        click.option("--n", type=int, required=True, help="Columns of the result."),
    )


def times(sizes: Mapping[str, int]) -> str:
    """Return the sizes of a product as people write them."""
    return "x".join(str(sizes[name]) for name in "mkn")


UNIT_FIELDS = {
    "softmax": "softmax",
    "addnorm": "norm",
    "table": "activation",
    "rotary": "rotary",
    "argmax": "argmax",
}
"""The field that puts a unit into the accelerator, of units that it may leave out."""


def check_unit(unit: str, config: Config) -> None:
    """Raise :class:`InputError` where a unit is asked for that is left out by name.

    What a preset leaves out may be made alone all the same. The command has ``--config`` and
    ``--set``.
    """
    field, given = UNIT_FIELDS.get(unit), click.get_current_context().params
    asked = stated(given["source"], list(given["overrides"]))
    if field in asked and not getattr(config, str(field)):
        raise InputError(f"Unit {unit} is left out: {field} is false")


KV_OPTIONS = (
    click.option("--kv-bits", default=8, show_default=True, help="Width of the KV cache, 8 or 4."),
    click.option(
        "--kv-whole",
        type=int,
        help="Columns of a key head that keep 8 bits of 4; half of a rotated head without it.",
    ),
    click.option(
        "--kv-blocks",
        default=0,
        show_default=True,
        help="Columns of values of 4 bits that share an exponent; 0 for none.",
    ),
)


NORM_OPTIONS = (
    click.option(
        "--folded", is_flag=True, help="RMS norms' gains in the weights: fewer parameter words."
    ),
    click.option(
        "--deferred",
        is_flag=True,
        help="RMS norms and softmaxes leave rows' factors to the products behind.",
    ),
)


def norm_options(command: Command) -> Command:
    """Add options for what RMS norms leave to the products behind them."""
    return added(NORM_OPTIONS, command)


def kv_options(command: Command) -> Command:
    """Add options for the bits of keys and values that are kept."""
    return added(KV_OPTIONS, command)


def given_options(names: Sequence[str]) -> list[str]:
    """Return those of the command's parameters that the command line gives, as options."""
    context = click.get_current_context()
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) == ParameterSource.COMMANDLINE
    ]
