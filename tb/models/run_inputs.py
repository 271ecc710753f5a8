"""Reads a model's inputs and their labels (right classes) from files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.sample_files import (
    count_cut,
    input_files,
    read_classified,
    read_labels,
    read_samples,
)
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.tokenizer import read_sentences
from celosia.generators.runtime.host import Host
from celosia.tb.models.digits_model import read_digits

Inputs = Sequence[NDArray[np.generic]]
_Item = TypeVar("_Item")
CALIBRATION = Path(__file__).parents[2] / "generators" / "samples" / "sentences.txt"
"""Sentences to calibrate on if none are given."""
_SEED = 1


@dataclass(frozen=True, kw_only=True)
class Files:
    """Paths of the files with a run's inputs, the inputs' labels, and the calibration inputs."""

    inputs: Path | None = None
    """File of inputs: arrays that the model accepts, or texts with one text per line."""
    answers: Path | None = None
    """File of inputs with labels: each line has a text, a tab, and the text's right class."""
    calibration: Path | None = None
    """File of calibration inputs; by default sentences of the package, or the inputs."""
    labels: Path | None = None
    """File of labels: the right class of each input."""
    random: int = 0
    """Number of random inputs of the run if no file has inputs."""

    def given(self) -> bool:
        """Return True if the run's inputs are in one of the files, or are random.

        The files with inputs are ``inputs`` and ``answers``. The inputs are random if ``random`` is
        not 0.
        """
        return bool(self.inputs or self.answers or self.random)

    @property
    def are_texts(self) -> bool:
        """True if the inputs are a file of texts, with one text per line."""
        file = self.inputs
        return file is not None and file.suffix not in (".npy", ".npz") and not file.is_dir()


NO_FILES = Files()
"""No files: models of the digits run on their test split."""


def read_inputs(
    model: str, source: Source, files: Files, count: int | None
) -> tuple[Inputs, Inputs, NDArray[np.int64] | None]:
    """Return a run's first ``count`` inputs, its calibration inputs, and the labels of all inputs.

    If ``files`` gives no inputs, the inputs are Celosia's images of digits. Unknown labels are
    None. Raises :class:`InputError` if a file or ``count`` cannot be used, or if ``files`` gives no
    inputs for a model of other data than images.
    """
    # Calibration inputs: training images, a given file, example sentences for texts, or all inputs.
    if not files.given():
        samples, images, right = read_digits(model, source)
        return first(list(images), count, "images"), list(samples), right
    labels = None
    if files.labels is not None:
        folder = files.inputs is not None and files.inputs.is_dir()
        named = input_files(files.inputs) if folder and files.inputs is not None else ()
        labels = read_labels(files.labels, source, named)
    texts_given = files.are_texts and source.tokenizer is not None
    if texts_given or files.answers is not None:
        if files.answers is not None:
            sentences, labels = read_classified(files.answers, source)
        elif files.inputs is not None:
            sentences = read_sentences(files.inputs)
            _check_count(files.labels, labels, len(sentences))
        texts = first(sentences, count, "sentences")
        chosen: Inputs = [source.prepare(source.encode(text)) for text in texts]
        samples = read_samples(files.calibration or CALIBRATION, source, calibration=True)
        return chosen, samples, labels
    if files.inputs is not None:
        inputs = read_samples(files.inputs, source)
        _check_count(files.labels, labels, len(inputs))
        chosen = first(inputs, count, "inputs")
    else:
        _check_count(files.labels, labels, files.random)
        rng = np.random.default_rng(_SEED)
        inputs = [source.prepare(source.random(rng)) for _ in range(files.random)]
        chosen = first(inputs, count, "inputs")
    if files.calibration is not None:
        return chosen, read_samples(files.calibration, source, calibration=True), labels
    return chosen, inputs, labels


def _check_count(path: Path | None, labels: Sequence[int] | NDArray[np.int64] | None, count: int):
    if labels is not None and len(labels) != count:
        raise InputError(
            f"File {path} must have a label for each of {count} inputs, not {len(labels)}"
        )


def cut_inputs(source: Source, files: Files, count: int | None) -> int:
    """Return how many of the first ``count`` inputs exceed the model's input length and are cut."""
    if files.answers is not None:
        return source.count_truncated(read_classified(files.answers, source)[0][:count])
    if files.are_texts and files.inputs is not None:
        return source.count_truncated(read_sentences(files.inputs)[:count])
    if files.inputs is not None and files.inputs.is_dir():
        return count_cut(files.inputs, source, count)
    return 0


def first(inputs: Sequence[_Item], count: int | None, name: str) -> Sequence[_Item]:
    """Return the first ``count`` inputs, or all inputs if ``count`` is None.

    Raises :class:`InputError` if ``count`` is less than 1 or more than the number of inputs. The
    error's message calls the inputs ``name``.
    """
    count = len(inputs) if count is None else count
    if not 1 <= count <= len(inputs):
        raise InputError(f"Count of {name} must be from 1 to {len(inputs)}, not {count}")
    return inputs[:count]


def check_room(code: Host, memory_bytes: int) -> None:
    """Check that a board has as much external memory as a compiled model needs.

    Raises :class:`InputError` otherwise.
    """
    if code.memory_bytes > memory_bytes:
        raise InputError(
            f"Model {code.name} needs {code.memory_bytes} bytes of external memory, but the board "
            f"has {memory_bytes}"
        )


def cosine(output: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Return the cosine similarity of two outputs of any shape; 1 if both outputs are zero."""
    a, b = output.ravel(), other.ravel()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else float(np.array_equal(a, b))
