"""Import of text encoders like BERT from Hugging Face folders."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.files import within
from celosia.arch.functions import sigmoid
from celosia.arch.tables import read_table
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.folder_tokenizer import folder_tokenizer
from celosia.generators.frontend.host_steps import Array, HostStep, layer_norm, pointwise
from celosia.generators.frontend.hugging_face_folder import TABLES, Folder, own_name
from celosia.generators.frontend.hugging_face_heads import Head, drop_unused, text_head
from celosia.generators.frontend.sentence_folder import read_sentence_folder
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.weights import Floats, check_weights

DEFAULT_TOKENS = 128
"""Longest input (tokens) if the caller requests none and the folder allows it."""
_POSITIONS = re.compile(r"embeddings\.(position|token_type)_ids$")


@dataclass(frozen=True)
class _Family:
    """Names of the fields and tensors of one family of models."""

    fields: Mapping[str, str]
    """A description's field by the configuration's name of it."""
    layer: str
    """Prefix of layer 0, without its number."""
    parts: Mapping[str, str]
    """Our name of each part of a layer."""
    after_padding: bool = False
    """True if the first token uses the row after the padding's in the table of positions."""
    projection: str = ""
    """The linear layer after embeddings that are narrower than the model."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Settings with only one supported value, and this value."""
    shared: bool = False
    """True if all layers have the tensors of one."""


FAMILIES = {
    name: _Family(**values) for name, values in read_table(TABLES / "encoders.toml").items()
}
"""The kinds of models that are read, by the configuration's ``model_type``."""
_EMBEDDINGS = {
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "types",
    "embeddings.LayerNorm": "embedding_norm",
}
_TABLE_SIZES = {
    "max_position_embeddings": ("embeddings.position_embeddings.weight", 0),
    "type_vocab_size": ("embeddings.token_type_embeddings.weight", 0),
    "embedding_size": ("embeddings.word_embeddings.weight", 1),
}
"""The table whose size along an axis a setting must equal, if it is given."""
_FIXED_EPSILON = 1e-12
"""Epsilon of norms of classes that have no setting for it."""


def load_hugging_face(folder: Path, name: str = "", tokens: int = 0) -> Source:
    """Return the text encoder in a Hugging Face folder (config.json and model.safetensors).

    ``tokens`` is the largest number of tokens of a text. If ``tokens`` is 0, the number is 128, or
    less if the model or its tokenizer accepts less. Raises :class:`InputError` if a file, setting
    or tensor is missing or not supported, or if ``tokens`` exceeds the model's limit.
    """
    model_folder = Folder(folder)
    family = FAMILIES[model_folder.kind]
    model_folder.no_setting_left(family.only, {})
    model_folder.read((f"{model_folder.kind}.", "roberta."))
    tables = {o: model_folder.tensors.get(f"{t}.weight") for t, o in _EMBEDDINGS.items()}
    words = tables["words"]
    if words is None:
        raise InputError(f"Weight 'words' is missing in {model_folder.weights_path}")
    if words.ndim != 2:
        raise InputError(f"Weight 'words' in {model_folder.weights_path} must be a matrix")
    fields = _fields(model_folder, family, tables["positions"], name or folder.name, tokens)
    sentences = read_sentence_folder(folder)
    tokenizer = folder_tokenizer(folder, sentences)
    fields |= {"pooling": sentences.pooling, "unit": sentences.unit}
    longest = fields.pop("longest")
    if tokenizer is not None and tokenizer.longest:
        longest = min(tokenizer.longest, longest)
    if not tokens:
        fields["tokens"] = min(DEFAULT_TOKENS, longest)
    head = Head()
    if fields["pooling"] == "none":
        table = np.asarray(words, np.float64)
        head = text_head(
            model_folder, table, fields["tokens"], fields["activation"], float(fields["epsilon"])
        )
        if model_folder.architecture.endswith("ForSequenceClassification") and sentences.sigmoid(
            model_folder.config, head.fields["classes"]
        ):
            head.after += (pointwise("sigmoid", sigmoid),)
    unused = drop_unused(model_folder, _POSITIONS)
    own_weights = _weights(model_folder, family, fields)
    before: tuple[HostStep, ...] = ()
    narrow = f"{family.projection}.weight" if family.projection else ""
    wide = words.shape[1:] == (fields["dim"],) and narrow not in model_folder.tensors
    if not wide:
        before = (_narrow_embedding(model_folder, family, own_weights, fields),)
        fields |= {"embedding": "none", "vocabulary": 0, "types": 0, "embedding_norm": False}
        fields["positions"] = "none"
    model_folder.nothing_left()
    with within(model_folder.weights_path):
        description = ModelDescription(**fields | head.fields)
        weights = check_weights(own_weights | head.weights, description)
    return Source(
        description,
        weights,
        tokenizer,
        before=before,
        after=head.after,
        unused=tuple(sorted(unused)),
        labels=head.labels,
        path=folder,
        shape=(description.tokens,) if before else None,
        vocabulary=len(words),
        types=0 if tables["types"] is None else len(tables["types"]),
        longest=min(tokens or longest, longest),
        padding=model_folder.config["pad_token_id"] if family.after_padding else None,
        pairs=sentences.pooling == "none",
    )


def _weights(
    folder: Folder, family: _Family, fields: Mapping[str, Any]
) -> dict[str, NDArray[np.generic]]:
    """Return every tensor that has a name of ours; layers that are shared are repeated."""
    first = _first_position(folder, family)
    tensors: dict[str, NDArray[np.generic]] = {}
    for theirs in list(folder.tensors):
        ours = own_name(theirs, family.layer, family.parts, _EMBEDDINGS)
        if not ours:
            continue
        tensor = folder.take(theirs)
        if ours == "positions":
            tensor = tensor[first : first + fields["tokens"]]
        if family.shared and ours.startswith("layers.0."):
            for layer in range(fields["layers"]):
                tensors[ours.replace("layers.0.", f"layers.{layer}.")] = tensor
        else:
            tensors[ours] = tensor
    return tensors


def _first_position(folder: Folder, family: _Family) -> int:
    """Return the row of the table of positions for the first token."""
    return folder.config["pad_token_id"] + 1 if family.after_padding else 0


def _fields(
    folder: Folder, family: _Family, places: NDArray[np.generic] | None, name: str, tokens: int
) -> dict[str, Any]:
    config, path = folder.config, folder.config_path
    sizes = {ours: config[theirs] for theirs, ours in family.fields.items()}
    activation = folder.activation("hidden_act" if "hidden_act" in config else "activation")
    if config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder"):
        raise InputError(f"Configuration {path} must be that of an encoder with absolute positions")
    for setting, (table, axis) in _TABLE_SIZES.items():
        if table in folder.tensors:
            folder.only(setting, folder.tensors[table].shape[axis], f", by the weight {table!r}")
    longest = 0 if places is None else len(places) - _first_position(folder, family)
    if tokens > longest:
        raise InputError(f"Model {name} takes at most {longest} tokens, not {tokens}")
    types = folder.tensors.get("embeddings.token_type_embeddings.weight")
    return {
        "name": name,
        "tokens": tokens,
        "longest": longest,
        "embedding": "tokens",
        "types": 0 if types is None else len(types),
        "embedding_norm": True,
        "variable": True,
        "placement": "post",
        "final_norm": False,
        "epsilon": float(config.get("layer_norm_eps", _FIXED_EPSILON)),
        "activation": activation,
        **sizes,
    }


def _narrow_embedding(
    folder: Folder,
    family: _Family,
    tensors: dict[str, NDArray[np.generic]],
    fields: Mapping[str, Any],
) -> HostStep:
    """Return the step from token numbers to rows, by tables that are narrower than the model."""
    columns = tensors["words"].shape[1]
    tensors.setdefault("types", np.zeros((1, columns)))
    parts = ("words", "positions", "types", "embedding_norm.weight", "embedding_norm.bias")
    for name in parts:
        if name not in tensors or tensors[name].shape[-1:] != (columns,):
            raise InputError(
                f"Weight {name!r} must be there, with {columns} columns, in {folder.weights_path}"
            )
    words, places, types, gamma, beta = (
        np.asarray(tensors.pop(part), np.float64) for part in parts
    )
    norm = layer_norm("", gamma, beta, float(fields["epsilon"]))
    matrix: Floats = np.eye(fields["dim"])
    bias: Floats = np.zeros(fields["dim"])
    if family.projection:
        matrix = folder.floats(f"{family.projection}.weight", fields["dim"], columns)
        bias = folder.floats(f"{family.projection}.bias", fields["dim"])
    elif columns != fields["dim"]:
        raise InputError(
            f"Weight 'words' must have {fields['dim']} columns, not {columns} in "
            f"{folder.weights_path}"
        )

    def function(numbers: Array) -> Array:
        kinds = np.zeros(len(numbers), np.int64)
        if numbers.ndim == 2:
            numbers, kinds = numbers.T
        wrong = numbers[(numbers < 0) | (numbers >= len(words))]
        if numbers.dtype.kind not in "iu" or wrong.size:
            cause = f"{wrong[0]}" if wrong.size else str(numbers.dtype)
            raise InputError(
                f"Model {fields['name']} takes token numbers from 0 to {len(words) - 1}, not "
                f"{cause}"
            )
        rows = norm.function(words[numbers] + places[: len(numbers)] + types[kinds])
        return np.asarray(rows @ matrix.T + bias)

    sizes = (words.size, places.size, types.size, gamma.size, beta.size, matrix.size, bias.size)
    meaning = (
        f"lookup of {words.shape[1]} columns, LayerNorm, and a linear layer to {fields['dim']}"
    )
    return HostStep("embedding", meaning, function, sum(sizes), fields["tokens"] * matrix.size)
