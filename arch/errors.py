"""Errors that are reported in one sentence; any other exception is a defect of this project."""

from collections.abc import Collection
from difflib import get_close_matches


class InputError(ValueError):
    """A value that a caller gave is wrong: the sentence names the field and its value."""


class InputTypeError(InputError, TypeError):
    """A value that a caller gave has the wrong type."""


class ProgramError(ValueError):
    """A machine's program is wrong: the sentence names the instruction and its word.

    Whoever writes programs corrects them; from the compiler it is a defect of the compiler.
    """


class RunError(RuntimeError):
    """A simulation, a tool or a board failed; the sentence ends with the end of its log."""


def check_known(label: str, name: object, known: Collection[str]) -> None:
    """Raise :class:`InputError` where a name is none of those that are known."""
    if name not in known:
        names = ", ".join(map(str, known))
        raise InputError(f"Unknown {label} {name!r};{close(name, known)} known are {names}")


def close(name: object, known: Collection[str]) -> str:
    """Return a question for the known name that is closest; an empty text if none is close."""
    names = get_close_matches(str(name), [str(each) for each in known], 1)
    return f" did you mean {names[0]}?" if names else ""
