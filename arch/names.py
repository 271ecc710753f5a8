"""Checks of names that appear in generated files and on terminals."""

from celosia.arch.errors import InputError, InputTypeError

LONGEST = 255
"""Most characters of a name."""


def check_name(label: str, name: object) -> None:
    """Raise an error that begins with ``label`` if ``name`` is not a short printable string.

    Raises :class:`InputTypeError` if the name is no string, and :class:`InputError` if the name is
    too long or has unprintable characters such as line ends and escape codes.
    """
    if not isinstance(name, str):
        raise InputTypeError(f"{label} must be a string, not {name!r}")
    if not name.isprintable() or len(name) > LONGEST:
        shown = repr(name if len(name) <= LONGEST else f"{name[:80]}...")
        raise InputError(f"{label} must be at most {LONGEST} printable characters, not {shown}")
