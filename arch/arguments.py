"""Checks the types and the minimum values of a function's arguments."""

import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

from celosia.arch.errors import InputError, InputTypeError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_WIDER: dict[type, type] = {int: Integral, float: Real, Path: PathLike}
"""The class whose objects a parameter of a class accepts, too."""
_WORDS = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "Path": "a path",
    "Config": "one of celosia.config",
    "Model": "one of celosia.load",
    "Mapping": "a dictionary",
}
_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def kinds_of(annotation: Any) -> tuple[type, ...]:
    """Return the classes that a parameter's annotation allows: a tuple such as (int, str).

    The tuple is empty if there is no annotation, or if one of the annotation's types is not a
    class. ``Any`` and protocols do not count as classes.
    """
    parts = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    kinds = tuple(get_origin(part) or part for part in parts)
    plain = all(
        isinstance(kind, type)
        and kind not in (Any, inspect.Parameter.empty)
        and not getattr(kind, "_is_protocol", False)
        for kind in kinds
    )
    return kinds if plain else ()


def check_type(label: str, kinds: tuple[type, ...], value: object) -> None:
    """Raise :class:`InputTypeError` if ``value`` is not an instance of a class in ``kinds``.

    ``label`` begins the message. If ``kinds`` is empty, every value is accepted. ``float`` includes
    integers, and NumPy's numbers count as Python's. ``int`` and ``float`` do not include True and
    False.
    """
    wider = [_WIDER[kind] for kind in kinds if kind in _WIDER]
    flag = isinstance(value, bool) and bool not in kinds and kinds
    if flag or (kinds and not isinstance(value, (*kinds, *wider))):
        names = [kind.__name__ for kind in kinds if kind is not type(None)]
        words = " or ".join(_WORDS.get(name, f"a {name}") for name in names)
        raise InputTypeError(f"{label} must be {words}, not {value!r}")


def parameters(function: Callable[..., Any]) -> Mapping[str, tuple[type, ...]]:
    """Return a dictionary from each parameter of a function to the classes of its annotation.

    ``*args`` and ``**named`` are left out.
    """
    described = inspect.signature(function).parameters.items()
    return {name: kinds_of(own.annotation) for name, own in described if own.kind in _PLAIN}


def checked(**least: int) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that checks a function's arguments before each call.

    Each argument must have the type of its annotation (:func:`check_type`), and be at least the
    number that ``least`` gives for its name. Raises :class:`InputError` in the call otherwise.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature, kinds = inspect.signature(function), parameters(function)

        @functools.wraps(function)
        def with_checks(*arguments: _P.args, **named: _P.kwargs) -> _R:
            for name, value in signature.bind(*arguments, **named).arguments.items():
                check_type(f"Argument {name}", kinds.get(name, ()), value)
                if name in least and value is not None and value < least[name]:
                    raise InputError(f"Argument {name} must be at least {least[name]}, not {value}")
            return function(*arguments, **named)

        return with_checks

    return decorate
