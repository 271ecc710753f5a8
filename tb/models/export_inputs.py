"""The example inputs in the files of an exported model, and the model's calibration inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.files import read_lines
from celosia.arch.names import check_name
from celosia.generators.frontend.sample_files import read_samples
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.weights import model_names
from celosia.tb.models.run_inputs import CALIBRATION, Files, Inputs, first, read_inputs

COUNT = 5
"""Most inputs that are exported with a model if no count is given."""


@dataclass(frozen=True)
class ExportInputs:
    """A model's calibration inputs, the inputs to export, and the names of the output's columns."""

    samples: Inputs
    """Calibration inputs."""
    rows: Sequence[NDArray[np.float32]]
    """Inputs to export: for each input the rows that the machine receives, before quantization."""
    names: tuple[str, ...]
    """Names of the output's columns; empty if unknown."""


def export_inputs(model: str, source: Source, files: Files, count: int | None) -> ExportInputs:
    """Return a model's inputs to export, its calibration inputs, and names of output columns.

    The first ``count`` inputs are exported. If ``count`` is None, at most ``COUNT`` are exported.
    If ``files`` is empty, the inputs are Celosia's digits or sentences. Raises :class:`InputError`
    if none of these fit the model, or a file or ``count`` is wrong.
    """
    names = source.labels
    inputs: Inputs
    samples: Inputs
    if files.given():
        inputs, samples, _ = read_inputs(model, source, files, count)
    elif files.calibration is not None:
        inputs = samples = read_samples(files.calibration, source, calibration=True)
    elif model in model_names():
        inputs, samples, _ = read_inputs(model, source, files, None)
        names = names or tuple(map(str, range(source.description.classes)))
    elif source.tokenizer is not None:
        inputs = samples = read_samples(CALIBRATION, source, calibration=True)
    else:
        raise InputError(
            f"Model {model} needs inputs to calibrate on; give them with --inputs or "
            "--calibration, or ask for random ones with --inputs random:COUNT"
        )
    chosen = first(inputs, min(COUNT, len(inputs)) if count is None else count, "inputs")
    rows = [np.asarray(source.rows(each), np.float32) for each in chosen]
    return ExportInputs(samples, rows, names)


def read_names(path: Path, source: Source) -> tuple[str, ...]:
    """Return the names of the output's columns from a file with one name per line.

    Raises :class:`InputError` if the file cannot be read, or its number of lines is not the
    model's number of output columns.
    """
    lines = read_lines(path, "names")
    columns = source.description.outputs[1]
    if len(lines) != columns:
        raise InputError(f"Names {path} must have {columns} lines, not {len(lines)}")
    for number, line in enumerate(lines):
        check_name(f"Line {number + 1} of {path}", line)
    return tuple(lines)
