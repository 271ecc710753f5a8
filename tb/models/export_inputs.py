"""Inputs that are exported with a model, and its calibration inputs."""

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
    """A model's inputs to export, calibration inputs, and names of output columns."""

    samples: Inputs
    """Inputs to calibrate on."""
    rows: Sequence[NDArray[np.float32]]
    """Inputs as the machine is given them, before quantization."""
    names: tuple[str, ...]
    """The names of the output's columns, if known."""


def export_inputs(model: str, source: Source, files: Files, count: int | None) -> ExportInputs:
    """Return a model's inputs to export, calibration inputs, and names of output columns.

    The first ``count`` inputs from ``files`` are exported. If ``count`` is None, the first
    ``COUNT`` inputs are exported, or all if there are fewer. The column names are the model's
    labels. A model without labels has no column names. Exception: if ``files`` has no inputs and no
    calibration inputs, a model that comes with the package gets class numbers as names.

    If ``files`` has calibration inputs but no inputs, the calibration inputs are exported as
    inputs. If it has neither, the inputs depend on the model. A model that comes with the package
    gets images of digits: training images for calibration, test images as inputs. Another model
    that reads text gets the package's sentences for both.

    Raises :class:`InputError` if a file or the count cannot be used. It is also raised if ``files``
    has no inputs and no calibration inputs, and the model neither comes with the package nor reads
    text.
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
