"""Changes of functions in modules that are loaded already."""

import gc
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

Pairs = list[tuple[CodeType, CodeType]]
"""The codes of functions as they are, and as they are to be."""

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Names of codes that run where they stand."""


def pairs(old: CodeType, new: CodeType) -> Pairs | None:
    """Return the codes of functions that differ between two codes of a module.

    None stands for a difference that acts at import: outside functions, in a comprehension there,
    or in the default of a parameter.
    """
    before, after = list(_codes(old)), list(_codes(new))
    if _body(old) != _body(new) or len(before) != len(after):
        return None
    found: Pairs = []
    for one, other in zip(before, after, strict=True):
        if one == other:
            continue
        if one.co_name in _COMPREHENSIONS:
            return None
        inside: Pairs | None = _nested(one, other)
        if not one.co_flags & inspect.CO_OPTIMIZED:
            inside = pairs(one, other)
        if inside is None or one.co_freevars != other.co_freevars:
            return None
        found += inside
    return found


def _nested(old: CodeType, new: CodeType) -> Pairs:
    """Return the codes of a function, and of those within it, which it may have made already."""
    codes, before, after = [(old, new)], list(_codes(old)), list(_codes(new))
    if len(before) == len(after):
        for inner, changed in zip(before, after, strict=True):
            if inner != changed and inner.co_freevars == changed.co_freevars:
                codes += _nested(inner, changed)
    return codes


@cache
def functions() -> dict[tuple[str, int], list[FunctionType]]:
    """Return the functions that are loaded at the first call, by name and line.

    Forks share the pages of the result, and those of objects that ``gc`` then leaves alone.
    """
    found: dict[tuple[str, int], list[FunctionType]] = {}
    for value in gc.get_objects():
        if isinstance(value, FunctionType):
            found.setdefault(_key(value.__code__), []).append(value)
    gc.freeze()
    return found


def patch(changes: Pairs) -> None:
    """Give all loaded functions of the first codes the second ones."""
    for old, new in changes:
        path = Path(old.co_filename).resolve()
        for value in functions().get(_key(old), []):
            if Path(value.__code__.co_filename).resolve() == path:
                value.__code__ = new


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    return (value for value in code.co_consts if isinstance(value, CodeType))


def _body(code: CodeType) -> tuple[object, ...]:
    constants = [repr(value) for value in code.co_consts if not isinstance(value, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, constants
