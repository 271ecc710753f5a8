"""Packages that only some commands need."""

import importlib
import importlib.util
from typing import Any

from celosia.arch.errors import InputError


def library(module: str, who: str, package: str, extra: str = "") -> Any:
    """Return a module of a package that may be missing; ``extra`` is the one of ours that has it.

    Raises :class:`InputError`, which begins with ``who`` needs it, where it is missing.
    """
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        whose = f" of the extra {extra}" if extra else ""
        raise InputError(
            f"{who} the package {package}{whose}; install it with: pip install {package}"
        )
    return importlib.import_module(module)
