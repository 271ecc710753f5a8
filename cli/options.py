"""Options that several commands share."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS, stated
from celosia.machines import machine
from celosia.tb.machine.memory_timing import FAR, ONCHIP, SDRAM, MemoryTiming
from celosia.tb.machine.toolchain import MACHINES

Command = Callable[..., Any]
Adder = Callable[[Command], Command]


def add_options(options: Sequence[Adder], command: Command) -> Command:
    """Add options to a command by the decorators ``options``, and return the command.

    The command's help lists the options in the order of ``options``.
    """
    for option in reversed(options):
        command = option(command)
    return command


def as_one_argument(name: str, make: Callable[..., Any], *options: Adder) -> Adder:
    """Return a decorator that adds options to a command, and passes their values as one object.

    The function ``make`` returns the object for the options' values, its keyword arguments. The
    command's function receives the object as the argument with the name ``name``.
    """
    names = inspect.signature(make).parameters

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_group(**values: Any) -> Any:
            made = make(**{each: values.pop(each) for each in names})
            return command(**{name: made}, **values)

        return add_options(options, with_group)

    return decorate


simulator_option = click.option(
    "--sim",
    "simulator",
    default="verilator",
    show_default=True,
    metavar="NAME",
    help=f"The machine's simulator: {', '.join(MACHINES)}. Verilator compiles a machine once, for "
    "a minute or two; Icarus takes minutes for a model.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of random data.",
)


override_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change one field of the configuration; repeatable.",
)


def source_option(default: str) -> Adder:
    """Return a decorator that adds ``--config`` to a command.

    The command gets the option's text as ``source``: the name of a preset or board, or the path of
    a TOML file. ``default`` is the text if the user does not give the option.
    """
    return click.option(
        "--config",
        "source",
        default=default,
        show_default=True,
        metavar="NAME_OR_TOML",
        help=f"A TOML file, a board, or one of {', '.join(PRESETS)}.",
    )


def config_choice(defaults: str) -> Adder:
    """Return a decorator that adds ``--config``, with several default presets, and ``--set``.

    The command gets a function ``configured(preset)``. The function returns the configuration of
    ``--config`` or, if the user has not given ``--config``, of the preset ``preset``. Changes of
    ``--set`` apply in either case. ``defaults`` describes the default presets in the help text.
    """

    def make(source: str | None, overrides: tuple[str, ...]) -> Callable[[str], Config]:
        return lambda default: resolve(source or default, overrides)

    option = click.option(
        "--config",
        "source",
        metavar="NAME_OR_TOML",
        help=f"A TOML file, a board, or one of {', '.join(PRESETS)}.  [default: {defaults}]",
    )
    return as_one_argument("configured", make, option, override_option)


def config_options(default: str) -> Adder:
    """Return a decorator that adds ``--config`` and ``--set`` to a command.

    The command's argument ``config`` is the configuration that both options select. ``default`` is
    the value of ``--config`` if the user does not give it.
    """
    return as_one_argument("config", resolve, source_option(default), override_option)


def resolve(source: str, overrides: tuple[str, ...]) -> Config:
    """Return the configuration that ``--config`` and ``--set`` select.

    ``source`` is the value of ``--config``: the name of a preset or board, or the path of a TOML
    file. ``overrides`` are the values of ``--set``: texts such as ``rows=12``, which change fields.
    """
    return machine(source, overrides)


TIMINGS = {"chip": ONCHIP, "far": FAR, "sdram": SDRAM, "prompt": MemoryTiming()}
"""Names of the timings of external memory."""


def memory_options(default: str, *, sized: bool = False) -> Adder:
    """Return a decorator that adds the option ``--memory`` to a command.

    The command gets the timing of external memory as ``timing``, by default the timing with the
    name ``default``. If ``sized`` is true, the option also takes the memory's size, which the
    command gets as ``memory_bytes`` (bytes, or None without a size). If ``sized`` is false, a size
    raises :class:`InputError`.
    """
    size = "bytes that the host has, or, also after a comma, " if sized else ""
    option = click.option(
        "--memory",
        default=default,
        show_default=True,
        metavar="NAME_OR_CYCLES",
        help=f"External memory: {size}{', '.join(TIMINGS)}, or cycles to the first word and "
        "between words, and from refresh to refresh and of one: 40/1/780/9.",
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_memory(memory: str, **named: Any) -> Any:
            size, timing = read_memory(memory, default)
            if size is not None and not sized:
                raise InputError(f"Option --memory takes no bytes here, but {memory!r}")
            return command(timing=timing, **({"memory_bytes": size} if sized else {}), **named)

        return option(with_memory)

    return decorate


def read_memory(text: str, default: str) -> tuple[int | None, MemoryTiming]:
    """Return the size and the timing of external memory from the text of ``--memory``.

    ``text`` is a size (bytes), a timing, or both with a comma between. A timing is a name, such as
    ``sdram``, or cycles: LATENCY/INTERVAL or LATENCY/INTERVAL/PERIOD/REFRESH, such as
    ``40/1/780/9``. These are the cycles to the first word, between words, from refresh to refresh,
    and of a refresh. If the text has no size, the size is None. If it has no timing, the timing is
    the one with the name ``default``. Raises :class:`InputError` if the text has another form.
    """
    size, timing = None, TIMINGS[default]
    for part in filter(None, text.split(",")):
        numbers = part.split("/")
        if part in TIMINGS:
            timing = TIMINGS[part]
        elif not all(re.fullmatch(r"-?\d{1,18}", number) for number in numbers):
            raise InputError(
                f"Option --memory must be {', '.join(TIMINGS)} or cycles as 40/1, not {part!r}"
            )
        elif len(numbers) == 1:
            size = int(part)
        elif len(numbers) in (2, 4):
            timing = MemoryTiming(**dict(zip(timing.fields(), map(int, numbers), strict=False)))
        else:
            raise InputError(f"Option --memory takes 2 or 4 numbers of cycles, not {part!r}")
    if size is not None and size < 1:
        raise InputError(f"Option --memory must be 1 byte or more, not {size}")
    return size, timing


def size_argument(
    form: str, default: str | None = None, *, smallest: Mapping[str, int] | None = None
) -> Adder:
    """Return a decorator that adds an argument for sizes such as ``64x64x64`` to a command.

    ``form`` names the sizes, such as ``MxKxN``. The command gets a dictionary ``sizes`` from the
    names in lower case, such as ``m``, to integers. ``default`` is the argument's text if the user
    gives none. ``smallest`` is a dictionary with values for first sizes that the user may omit.
    """

    def read(
        context: click.Context, parameter: click.Parameter, text: str | None
    ) -> dict[str, int]:
        if text is None:
            raise click.MissingParameter(ctx=context, param=parameter)
        return read_size(form, text, smallest or {})

    return click.argument(
        "sizes", metavar=form, callback=read, required=default is None, default=default
    )


def read_size(form: str, text: str, smallest: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes in a text such as ``64x64x64``, as a dictionary from names to integers.

    ``form`` names the sizes; for ``MxKxN`` the names are ``m``, ``k`` and ``n``. ``smallest`` is a
    dictionary with values for first sizes that ``text`` may omit. Raises :class:`InputError` if the
    text has another form.
    """
    names, words = [name.lower() for name in form.split("x")], text.split("x")
    missing = len(names) - len(words)
    numbers = all(re.fullmatch(r"-?\d{1,18}", word) for word in words)
    if not 0 <= missing <= len(smallest) or not numbers:
        raise InputError(f"A size is {form} as 64x64x64, not {text!r}")
    return dict(smallest) | dict(zip(names[missing:], map(int, words), strict=True))


def size_text(sizes: Mapping[str, int]) -> str:
    """Return the sizes ``m``, ``k`` and ``n`` of a matrix product as text, such as ``64x64x64``."""
    return "x".join(str(sizes[name]) for name in "mkn")


UNIT_FIELDS = {
    "softmax": "softmax",
    "addnorm": "norm",
    "table": "activation",
    "rotary": "rotary",
    "argmax": "argmax",
}
"""The field that switches a unit of the accelerator on, for units that may be left out."""


def check_unit(unit: str, config: Config) -> None:
    """Raise :class:`InputError` if the command's options leave out the circuit ``unit``.

    The command generates or tests this circuit, such as ``softmax``. Options leave it out if
    ``--set`` or the TOML file of ``--config`` sets its configuration field to false. A preset that
    has no such unit is accepted.
    """
    field, values = UNIT_FIELDS.get(unit), click.get_current_context().params
    asked = stated(values["source"], list(values["overrides"]))
    if field in asked and not config.read(str(field)):
        raise InputError(f"Unit {unit} is left out: {field} is false")


QUANTIZE = "celosia.cli.options.quantize"
"""Key of a context for the keys of --quantize that are given, by their arguments' names."""


def given_options(names: Sequence[str]) -> list[str]:
    """Return the options in ``names`` that the user has given, as texts such as ``--seed``.

    ``names`` are names of the command's parameters. Options that are not on the command line, and
    so have default values, are not in the result.
    """
    context = click.get_current_context()
    keys = context.meta.get(QUANTIZE, {})
    return [f"--quantize {keys[name]}" for name in names if name in keys] + [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) == ParameterSource.COMMANDLINE
    ]


def refuse_given(user: str, *names: str) -> None:
    """Raise :class:`InputError` if the user has given one of some options.

    ``names`` are the names of these options as parameters of the command, such as ``file`` for
    ``--file``. ``user`` is the end of the error's message, such as "named products" in "Option
    --file is not for named products".
    """
    refused = given_options(names)
    if refused:
        raise InputError(f"Option {refused[0]} is not for {user}")
