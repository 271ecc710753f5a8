"""The option --prompt of the commands that continue texts."""

from collections.abc import Callable

import click

from celosia.arch.errors import InputError
from celosia.cli.options import Command
from celosia.generators.lower.residence import MOST_TEXTS


def prompt_option(about: str) -> Callable[[Command], Command]:
    """Return a decorator that adds an option ``--prompt`` to a command.

    The option takes one text. The command gets the text as its argument ``prompt``, or None if the
    option is not given. ``about`` is the option's help text.
    """

    def one(context: click.Context, _: click.Parameter, prompts: tuple[str, ...]) -> str | None:
        if len(prompts) > 1:
            raise InputError(
                f"Option --prompt may be given once to celosia {context.command.name}, not "
                f"{len(prompts)} times"
            )
        _check_text(prompts)
        return prompts[0] if prompts else None

    return click.option("--prompt", multiple=True, callback=one, help=about)


def prompts_option(about: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--prompt`` to a command; the user may give it twice.

    The command gets the texts as the tuple ``prompts``, which is empty if the option is not given.
    ``about`` is the beginning of the option's help text.
    """

    def some(_: click.Context, __: click.Parameter, prompts: tuple[str, ...]) -> tuple[str, ...]:
        if len(prompts) > MOST_TEXTS:
            raise InputError(f"Option --prompt may be given {MOST_TEXTS} times, not {len(prompts)}")
        _check_text(prompts)
        return prompts

    about += " Given twice, two texts go on, a token of each in every run."
    return click.option("--prompt", "prompts", multiple=True, callback=some, help=about)


def _check_text(prompts: tuple[str, ...]) -> None:
    for text in prompts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"Option --prompt must be UTF-8 text, not {text!r}") from None
