"""Fuzzing cases that run a command of ``celosia`` on a damaged file."""

import functools
import importlib
import os
from typing import Any

from celosia.cli.main import main
from celosia.generators.campaign.case import Case
from celosia.tb.verify.fuzz import files

_MODULES = (
    *(
        "celosia.cli.inspect",
        "celosia.cli.run",
        "celosia.cli.bench",
        "onnx.reference",
        "onnxruntime",
        "tokenizers",
        "PIL.Image",
    ),
    *("soundfile", "transformers.models.vit.image_processing_pil_vit"),
)


@functools.cache
def _import_all() -> None:
    """Import the commands' modules once, and not in each forked process."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    for name in _MODULES:
        importlib.import_module(name)


def run(case: Case) -> dict[str, Any]:
    """Damage a valid file, run a command of ``celosia`` that reads it, and return the result.

    ``case`` has the file's format and the damage. The result has the keys of
    :func:`celosia.tb.verify.fuzz.files.run`.
    """
    _import_all()
    return files.run(case, main)
