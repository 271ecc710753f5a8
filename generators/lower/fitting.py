"""Search for configuration changes with which a model fits the machine.

If a model does not fit, the compiler compiles it again for changed configurations. The error
message then names the changes that are successful.
"""

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
"""Most configurations that are tried with one compile function."""


class Reason(IntEnum):
    """Reasons why a program does not fit an accelerator.

    A larger number is for a program that is closer to fitting. The compiler tries several programs
    for an encoder. If none of the programs fits, the compiler's error has the reason with the
    largest number.
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
    """Error for a model that does not fit a memory or a unit of the machine.

    - ``remedies``: alternative changes of the configuration, each from field names to values.
    - ``reason``: why the model does not fit.
    - ``excess``: memory size that is needed (bytes, words or weight slots), or 0.
    - ``hopeless``: true if smaller loads do not help.
    - ``attempt``: functions to compile again, set by :func:`prepare_remedy`.
    """

    def __init__(
        self,
        text: str,
        *remedies: Changes,
        reason: Reason = Reason.LACKING,
        excess: int = 0,
        hopeless: bool = False,
    ):
        """Store the reason beside the sentence."""
        super().__init__(text)
        self.remedies, self.reason = remedies, reason
        self.excess, self.hopeless = excess, hopeless
        self.attempt: Attempt | None = None


@dataclass(frozen=True)
class Attempt:
    """A failed compilation, and functions that repeat it for other configurations."""

    config: Config
    compiles: Sequence[Callable[[Config], object]]
    """Compile functions, the fastest first. Each raises :class:`FitError` if a configuration is too
    small. A later function may succeed for a configuration for which an earlier one fails."""


@contextmanager
def prepare_remedy(config: Config, *compiles: Callable[[Config], object]) -> Iterator[None]:
    """Context manager that adds to a :class:`FitError` the functions to compile the model again.

    The error is raised in the ``with`` block, and later passed to :func:`remedy`. ``config`` is the
    configuration that the model does not fit. Each of ``compiles`` compiles the model for another
    configuration; the fastest is first.
    """
    try:
        yield
    except FitError as error:
        error.attempt = Attempt(config, compiles)
        raise


def doubled(config: Config, field: str, least: int = 0) -> dict[str, int]:
    """Return a larger value for the configuration field ``field``, as a dictionary {field: value}.

    The new value is a power of two. It is the smallest one that is larger than the value in
    ``config``, and at least ``least``.
    """
    return {field: next_power_of_two(max(config.read(field) + 1, least))}


def remedy(error: FitError, progress: Progress = lambda done, total: None) -> str:
    """Return a clause for an error message that names larger configurations for a model.

    An example is ``it fits with acc_depth=512, or with rows=8 and cols=8``. If none fits, the
    clause has the number of configurations tried. ``error`` must come from a ``with`` block of
    :func:`prepare_remedy`.
    """
    attempt = error.attempt
    assert attempt is not None, "whoever refuses says how to try again"
    tries = _Tries(attempt, progress)
    for compile in attempt.compiles:
        fitting = tries.fitting(error.remedies, compile)
        if fitting:
            return f"it fits with {', or with '.join(map(_text, fitting))}"
    return f"no configuration has room, of {len(tries.configs)} larger ones that were tried"


class _Tries:
    """Compilations for larger configurations than that of an attempt."""

    def __init__(self, attempt: Attempt, progress: Progress):
        self._attempt, self._progress = attempt, progress
        self._started = 0
        self.configs: list[Config] = []
        """The configurations that were tried."""

    def fitting(
        self, remedies: Sequence[Changes], compile: Callable[[Config], object]
    ) -> list[Changes]:
        """Return the changes of the first round with a success, or an empty list.

        The first round compiles with each of the ``remedies``. If a compilation raises a
        :class:`FitError`, the next round adds each of that error's remedies to the change.
        """
        waiting, seen = [*remedies], [dict(changes) for changes in remedies]
        most = self._started + MOST_TRIES
        while waiting and self._started < most:
            fitting, following = list[Changes](), list[Changes]()
            for changes in waiting[: most - self._started]:
                further = self._try_out(changes, compile)
                if further is None:
                    fitting.append(changes)
                    # A later refusal may make the first change of several unnecessary.
                    less = ({k: changes[k] for k in changes if k != name} for name in changes)
                    fewer = [some for some in less if some and some not in seen]
                    for some in fewer[: most - self._started]:
                        fitting += [some] if self._try_out(some, compile) is None else []
                else:
                    following += further
            if fitting:
                whole = [self._difference(changes, {}) for changes in fitting]
                distinct = [each for n, each in enumerate(whole) if each not in whole[:n]]
                return [
                    each for each in distinct if not any(_within(other, each) for other in distinct)
                ]
            waiting = []
            for changes in following:
                if changes not in seen:
                    seen.append(dict(changes))
                    waiting.append(changes)
        return []

    def _try_out(
        self, changes: Changes, compile: Callable[[Config], object]
    ) -> list[Changes] | None:
        """Return changes to try next, or None if the model fits with these ``changes``."""
        config = _changed(self._attempt.config, changes)
        if config is None:
            return []
        self._started += 1
        self._progress(self._started, MOST_TRIES * len(self._attempt.compiles))
        self.configs += [] if config in self.configs else [config]
        try:
            compile(config)
        except FitError as error:
            return [self._difference(changes, further) for further in error.remedies]
        except InputError:
            return []
        return None

    def _difference(self, changes: Changes, further: Changes) -> Changes:
        """Return the fields that differ from the attempt's configuration after all changes."""
        config = _changed(self._attempt.config, changes)
        assert config is not None, "only configurations that were tried are compared"
        before, fields = self._attempt.config.flat(), config.flat() | dict(further)
        return {name: value for name, value in fields.items() if value != before[name]}


def _changed(config: Config, changes: Changes) -> Config | None:
    """Return a changed configuration whose accumulators hold its sums, or None if impossible."""
    try:
        wide = config.replace(acc_width=RANGES["acc_width"][1], **changes)
        return wide.replace(acc_width=max(config.accumulators.width, wide.sum_width))
    except InputError:
        return None


def _within(changes: Changes, other: Changes) -> bool:
    """Return whether changes are some of other ones."""
    return changes.items() < other.items()


def _text(changes: Changes) -> str:
    values: Sequence[str] = [f"{name}={str(value).lower()}" for name, value in changes.items()]
    return " and ".join(values)
