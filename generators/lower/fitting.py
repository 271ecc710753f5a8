"""Remedies for models that do not fit: configuration changes, found by compiling again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from celosia.arch.access import next_power_of_two
from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.rules import RANGES

Changes = Mapping[str, Any]
"""Values of fields by name."""
Progress = Callable[[int, int], None]
MOST_TRIES = 24
"""Most configurations that are tried."""


class Stage(IntEnum):
    """Numbered reasons why a program does not fit a configuration.

    If no program of an encoder fits, the compiler reports the attempt that came closest: the one
    whose reason has the largest number.
    """

    LACKING = 0
    """A unit, or a memory that no choice of the compiler makes sufficient."""
    TOO_VARIED = 1
    """Loops differ in more than the registers can hold."""
    TOO_LARGE = 2
    TOO_LONG = 3
    OUTSIDE = 4
    """External memory is too small."""


class FitError(InputError):
    """A model does not fit a memory or a unit of the configuration.

    The ``remedies`` are alternatives: dictionaries from names of configuration fields to the
    smallest values that may suffice. ``excess`` is the size that the model needs in the memory that
    is too small. Its unit is bytes for the scratchpad and external memory, words for the program
    memory, and slots for weight slots (array storage for one weight tile each).

    ``hopeless`` is true if loads of other sizes or at other points of the program cannot help: the
    tensors alone do not fit the scratchpad, or the program is too long.
    """

    def __init__(
        self,
        text: str,
        *remedies: Changes,
        stage: Stage = Stage.LACKING,
        excess: int = 0,
        hopeless: bool = False,
    ):
        """Store the reason beside the sentence."""
        super().__init__(text)
        self.remedies, self.stage = remedies, stage
        self.excess, self.hopeless = excess, hopeless
        self.attempt: Attempt | None = None


@dataclass(frozen=True)
class Attempt:
    """The configuration and the compile function of a compilation that failed."""

    config: Config
    compile: Callable[[Config], object]
    """It raises :class:`FitError` if another configuration is too small too."""


@contextmanager
def again(config: Config, compile: Callable[[Config], object]) -> Iterator[None]:
    """Attach an :class:`Attempt` to a :class:`FitError` that the ``with`` block raises.

    The attempt holds ``config``, for which ``compile`` failed. :func:`remedy` calls ``compile``
    with other configurations.
    """
    try:
        yield
    except FitError as error:
        error.attempt = Attempt(config, compile)
        raise


def doubled(config: Config, field: str, least: int = 0) -> dict[str, int]:
    """Return a remedy that enlarges one field, as a dictionary {field: new value}.

    The new value is the smallest power of two that exceeds the old value and is at least ``least``.
    """
    return {field: next_power_of_two(max(config.read(field) + 1, least))}


def remedy(error: FitError, progress: Progress = lambda done, total: None) -> str:
    """Return a clause for a message: the configuration changes with which the model compiles.

    Changes are found by compiling the model for larger configurations, in rounds:

    - The first round tries the remedies of ``error``.
    - If a change fails with an error, the next round tries the change together with each remedy of
      that error.
    - The search ends after the first round with a success. The clause names all successful changes
      of this round.

    If no change helps, the clause states the number of configurations tried. ``progress`` is called
    with the number of started tries and the largest possible number of tries.
    """
    attempt = error.attempt
    assert attempt is not None, "whoever refuses says how to try again"
    tried = 0
    waiting: list[Changes] = list(error.remedies)
    seen = [dict(changes) for changes in waiting]
    while waiting:
        fitting: list[Changes] = []
        following: list[Changes] = []
        for changes in waiting:
            config = _changed(attempt.config, changes)
            if config is None or tried == MOST_TRIES:
                continue
            tried += 1
            progress(tried, MOST_TRIES)
            try:
                attempt.compile(config)
            except FitError as further:
                following += [
                    _difference(attempt.config, config, changes) for changes in further.remedies
                ]
            except InputError:
                continue
            else:
                fitting.append(_difference(attempt.config, config, {}))
        if fitting:
            needed = [
                changes
                for changes in fitting
                if not any(_within(other, changes) for other in fitting)
            ]
            return f"it fits with {', or with '.join(map(_text, needed))}"
        waiting = []
        for changes in following:
            if changes not in seen:
                seen.append(dict(changes))
                waiting.append(changes)
    return f"no configuration has room, of {tried} larger ones that were tried"


def _changed(config: Config, changes: Changes) -> Config | None:
    """Return a changed configuration whose accumulators hold its sums, or None if impossible."""
    try:
        wide = config.replace(acc_width=RANGES["acc_width"][1], **changes)
        return wide.replace(acc_width=max(config.accumulators.width, wide.sum_width))
    except InputError:
        return None


def _difference(first: Config, config: Config, further: Changes) -> Changes:
    """Return the fields in which a configuration with further changes differs from the first."""
    before, fields = first.flat(), config.flat() | dict(further)
    return {name: value for name, value in fields.items() if value != before[name]}


def _within(changes: Changes, other: Changes) -> bool:
    """Return whether changes are some of other ones."""
    return changes.items() < other.items()


def _text(changes: Changes) -> str:
    values: Sequence[str] = [f"{name}={str(value).lower()}" for name, value in changes.items()]
    return " and ".join(values)
