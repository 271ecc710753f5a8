"""The option --prompt of the commands that go on with texts."""

from collections.abc import Callable

import click

from celosia.arch.errors import InputError
from celosia.cli.options import Command
from celosia.generators.lower.residence import MOST_TEXTS


def prompt_option(about: str) -> Callable[[Command], Command]:
    """Return what adds the option to a command of one text, which gets it as ``prompt``."""

    def one(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> str | None:
        if len(given) > 1:
            raise InputError(
                f"Option --prompt may be given once to celosia {context.command.name}, not "
                f"{len(given)} times"
            )
        _check_text(given)
        return given[0] if given else None

    return click.option("--prompt", multiple=True, callback=one, help=about)


def prompts_option(about: str) -> Callable[[Command], Command]:
    """Return what adds the option to a command of one text or two, as a tuple ``prompts``."""

    def some(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
        if len(given) > MOST_TEXTS:
            raise InputError(f"Option --prompt may be given {MOST_TEXTS} times, not {len(given)}")
        _check_text(given)
        return given

    about += " Given twice, two texts go on, a token of each in every run."
    return click.option("--prompt", "prompts", multiple=True, callback=some, help=about)


def _check_text(given: tuple[str, ...]) -> None:
    for text in given:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"Option --prompt must be UTF-8 text, not {text!r}") from None
