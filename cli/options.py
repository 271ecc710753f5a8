"""Options that several commands share."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import NESTED, PLANES
from celosia.arch.isa import RING_SLOTS
from celosia.arch.presets import PRESETS, load, stated
from celosia.arch.rules import WIDE_SUMS
from celosia.generators.graph.quantized import Decoder
from celosia.generators.quantize.options import INT8, MIXED, NARROW_BITS, Quantization
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


def equipped(config: Config, options: Quantization, rows: int = 0) -> Config:
    """Return a configuration that has what options ask for.

    That are INT16 rows of products, with the operands and sums that these need, polynomials of
    functions, the factors of so many ``rows``, and, if it had no weight formats, those.
    """
    if options.deferred:
        rows = max(rows, config.row_factors)
        config = config.replace(multiplier_width=16, row_factors=rows)
    if options.wide_functions:
        config = config.replace(wide_functions=True)
    if options.activations == MIXED:
        config = config.replace(wide_operands=True, zero_points=True, acc_width=WIDE_SUMS)
    if config.formats:
        return config
    asked = dict.fromkeys((options.weights, *options.chosen.values()))
    asked.pop(INT8, None)
    if NESTED in asked:
        asked.pop(NESTED)
        asked |= dict.fromkeys(PLANES.values())
    if not asked:
        return config
    return config.replace(weight_formats=",".join(asked), weight_group=options.group)


def paired(config: Config, decoder: Decoder) -> Config:
    """Return a configuration whose slots hold a decoder's keys and values in pairs, if it may."""
    resident = config.weight_depth > RING_SLOTS
    if decoder.kv_bits == NARROW_BITS or config.packed_cache or not resident:
        return config
    low_rows = decoder.whole if decoder.key_bits < NARROW_BITS else 0
    return config.replace(packed_cache=True, low_rows=low_rows, block_exponents=decoder.block > 0)


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
