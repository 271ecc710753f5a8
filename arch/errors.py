"""Errors that users see as one sentence; any other exception is a bug in Celosia."""

from collections.abc import Collection
from difflib import get_close_matches


class InputError(ValueError):
    """Invalid input from a caller; the message names the value and its field or file."""


class InputTypeError(InputError, TypeError):
    """A value from a caller has the wrong type; the message names its argument or field."""


class ProgramError(ValueError):
    """An invalid machine program; the message names the instruction and its word address.

    For a hand-written program it is an error of the program's author. For a compiled program it is
    a bug in the compiler.
    """


class RunError(RuntimeError):
    """A simulation, tool or board failed; the message ends with the last lines of its log."""


def check_known(label: str, name: object, known: Collection[str]) -> None:
    """Raise :class:`InputError` if ``name`` is not in ``known``.

    ``label`` is the noun before ``name`` in the message, such as ``field``.
    """
    if name not in known:
        names = ", ".join(map(str, known))
        raise InputError(f"Unknown {label} {name!r};{close(name, known)} known are {names}")


def close(name: object, known: Collection[str]) -> str:
    """Return the text " did you mean NAME?", or "" if no name in ``known`` resembles ``name``.

    NAME is the name in ``known`` that is most similar to ``name``.
    """
    names = get_close_matches(str(name), [str(each) for each in known], 1)
    return f" did you mean {names[0]}?" if names else ""
