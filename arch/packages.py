"""Imports optional Python packages, and names the pip extra that installs a missing package."""

import importlib
import importlib.util
import re
from importlib import metadata
from typing import Any

from celosia.arch.errors import InputError

_PACKAGES = {
    "PIL": "pillow",
    "amaranth_boards": "amaranth-boards",
    "cocotb_tools": "cocotb",
    "cocotbext": "cocotbext-axi",
    "serial": "pyserial",
    "sklearn": "scikit-learn",
    "systemrdl": "systemrdl-compiler",
}
"""Package of each module that has a different name."""


def library(module: str, subject: str, package: str = "", extra: str = "") -> Any:
    """Import and return a module of an optional package.

    ``package`` and ``extra`` (pip extra of Celosia) are by default found from the module's name.
    Raises :class:`InputError` if the package is missing; its message begins with ``subject``, such
    as "Images need".
    """
    top = module.partition(".")[0]
    if importlib.util.find_spec(top) is None:
        raise missing(top, subject, package, extra)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(str(error.name).partition(".")[0], subject) from error


class Deferred:
    """A module that is imported at the first access to one of its attributes.

    The module may need an optional package, directly or through its imports. If the package is
    missing, an access raises the :class:`InputError` of :func:`library`, whose message begins with
    ``subject``.
    """

    def __init__(self, module: str, subject: str):
        self._module, self._subject = module, subject

    def __getattr__(self, name: str) -> Any:
        return getattr(library(self._module, self._subject), name)


def missing(module: str, subject: str, package: str = "", extra: str = "") -> InputError:
    """Return the :class:`InputError` for a module that is not installed, with the pip command.

    The message begins with ``subject``. ``package`` and ``extra`` (pip extra of Celosia) are by
    default found from the module's name.
    """
    package = package or _PACKAGES.get(module, module)
    extra = extra or _extra(package)
    if not extra:
        return InputError(
            f"{subject} the package {package}; install it with: pip install {package}"
        )
    return InputError(f"{subject} the package {package} of the extra {extra}; {remedy(extra)}")


def remedy(extra: str) -> str:
    """Return a clause for an error message that says how to install an extra of Celosia with pip.

    The clause names two arguments of ``pip install``: for a checkout of the repository, and for a
    wheel file.
    """
    return f"install it with: pip install '.[{extra}]' in a checkout, or 'FILE.whl[{extra}]'"


def _extra(package: str) -> str:
    """Return the first extra that requires a package; "" if none does."""
    name = re.escape(package).replace(r"\-", "[-_]")
    wanted = re.compile(rf"{name}\b(?![-_]).*\bextra == ['\"](\w+)['\"]", re.IGNORECASE)
    matches = map(wanted.match, metadata.requires("celosia") or ())
    return next((match[1] for match in matches if match), "")
