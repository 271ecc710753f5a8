"""The circuits in Amaranth; ``__all__`` lists the circuits that other designs can import."""

import importlib
from typing import Any

assert __name__ == "celosia.hdl", "import celosia.hdl: hdl alone would be a second copy"

__all__ = [
    "Accelerator",
    "AddNorm",
    "Requantize",
    "Rotary",
    "Softmax",
    "SystolicArray",
    "Table",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'celosia.hdl' has no attribute {name!r}")
    return getattr(importlib.import_module("celosia.hdl.components"), name)


def __dir__() -> list[str]:
    return __all__
