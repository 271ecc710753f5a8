"""Names of models, configurations and classes, which go into generated files and to terminals."""

from celosia.arch.errors import InputError, InputTypeError

LONGEST = 255
"""Characters of a name, at most."""


def check_name(label: str, name: object) -> None:
    """Raise an error if ``name``, the name of ``label``, is not of printable characters.

    Raises :class:`InputTypeError` if it is no string, :class:`InputError` if it is too long or has
    characters such as line ends and escape codes, which no printed or generated text may have.
    """
    if not isinstance(name, str):
        raise InputTypeError(f"{label} must be a string, not {name!r}")
    if not name.isprintable() or len(name) > LONGEST:
        shown = repr(name if len(name) <= LONGEST else f"{name[:80]}...")
        raise InputError(f"{label} must be at most {LONGEST} printable characters, not {shown}")
