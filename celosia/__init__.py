"""Open-source Transformer accelerators, generated from parameters and verified bit for bit.

The names in ``__all__`` are the public interface, which ``docs/library.md`` describes; other
modules may change. The module of a name is imported at the first use of the name. Some modules need
optional packages, which are extras of the pip package.
"""

import importlib
from typing import Any

_MODULES = {
    "config": "celosia.machines",
    "load": "celosia.models",
    "compile": "celosia.compiling",
    "open": "celosia.opening",
    "build": "celosia.boards",
    "Config": "celosia.arch.config",
    "Model": "celosia.models",
    "Program": "celosia.programs",
    "Run": "celosia.results",
    "InputError": "celosia.arch.errors",
    "RunError": "celosia.arch.errors",
}
"""The module of each public function and class."""

__all__ = [
    "Config",
    "InputError",
    "Model",
    "Program",
    "Run",
    "RunError",
    "build",
    "compile",
    "config",
    "golden",
    "hdl",
    "load",
    "open",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'celosia' has no attribute {name!r}")
    module = importlib.import_module(_MODULES.get(name, f"celosia.{name}"))
    return getattr(module, name) if name in _MODULES else module


def __dir__() -> list[str]:
    return __all__
