"""Import of pre-norm encoder-decoders from Hugging Face folders: Blenderbot and Pegasus."""

from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.files import within
from celosia.arch.tables import read_table
from celosia.generators.frontend.hugging_face_folder import TABLES, Folder, own_name
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights, check_weights

PAIR_FAMILIES = ("blenderbot", "pegasus")
"""The kinds of encoder-decoders that are read, by the configuration's ``model_type``."""
_NAMES = read_table(TABLES / "pairs.toml")
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Tensors that repeat the vocabulary."""
MOST_NUMBERS = 1 << 28
"""Most numbers of positions that are computed."""
_EPSILON = 1e-5
"""Epsilon that norms of these kinds add to the variance, which no setting names."""


def load_hugging_face_pair(folder: Path) -> tuple[TextDescription, Weights]:
    """Return the description and weights of the encoder-decoder in a Hugging Face folder.

    Blenderbot and Pegasus are supported. The token vectors include the factor of
    ``scale_embedding``. Raises :class:`InputError` if a file, setting or tensor is missing or not
    supported.
    """
    model_folder = Folder(folder)
    model = _description(model_folder)
    model_folder.read(("model.",))
    words, own = _words(model_folder, tied=model.tied)
    if not model.tied and "lm_head.weight" not in model_folder.tensors:
        raise InputError(
            f"Weight 'lm_head.weight' is missing in {model_folder.weights_path}, and setting "
            f"'tie_word_embeddings' in {model_folder.config_path} is false"
        )
    head = np.asarray(model_folder.tensors.pop("lm_head.weight", words), np.float64)
    bias = np.ravel(np.asarray(model_folder.tensors.pop("final_logits_bias", 0), np.float64))
    tensors: dict[str, Floats] = {}
    for part, start in (("encoder", "source."), ("decoder", "")):
        places = _positions(model_folder, f"{part}.embed_positions.weight", model)
        tensors[f"{start}positions"] = places[: model.positions]
        for kind in ("weight", "bias"):
            tensors[f"{start}final_norm.{kind}"] = model_folder.floats(f"{part}.layer_norm.{kind}")
        for theirs in list(model_folder.tensors):
            ours = own_name(theirs, f"{part}.layers.", _NAMES["parts"], {})
            if ours:
                tensors[f"{start}{ours}"] = model_folder.floats(theirs)
    model_folder.nothing_left()
    scaled = model.dim**0.5 if model_folder.config.get("scale_embedding") else 1.0
    tensors["words"] = scaled * words
    model = model.replace(tied=scaled == 1.0 and bool(np.array_equal(head, words)))
    if not model.tied:
        tensors["head.weight"] = head
    if own is not None:
        model = model.replace(source_words=True)
        tensors["source.words"] = scaled * own
    if np.any(bias):
        model = model.replace(head_bias=True)
        tensors["head.bias"] = bias
    with within(model_folder.weights_path):
        return model, check_weights(tensors, model)


def _description(folder: Folder) -> TextDescription:
    config = folder.config
    alike = _NAMES["alike"].items()
    folder.no_setting_left(
        {encoder: config.get(decoder) for encoder, decoder in alike},
        {encoder: f": it is that of {decoder}" for encoder, decoder in alike},
    )
    values: dict[str, Any] = {ours: config[theirs] for theirs, ours in _NAMES["fields"].items()}
    values["start"] = _start(folder)
    values["tied"] = config["tie_word_embeddings"]
    with within(folder.config_path):
        return TextDescription(
            name=folder.path.name,
            norm="layernorm",
            epsilon=_EPSILON,
            position="learned",
            gated=False,
            activation=folder.activation("activation_function"),
            bias=True,
            source_positions=values["positions"],
            **values,
        )


def _start(folder: Folder) -> int | None:
    """Return the first token of an answer; None if the settings leave it open.

    generation_config.json has priority, with its first token of any text if it names no other.
    """
    settings = (folder.generation, folder.config)
    names = ("decoder_start_token_id", "bos_token_id")
    tokens = (own.get(name) for own in settings for name in names)
    return next((token for token in tokens if token is not None), None)


def _words(folder: Folder, *, tied: bool) -> tuple[Floats, Floats | None]:
    """Return the vocabulary of answers, and that of sources if it is another.

    Tensors that repeat the vocabulary are removed.
    """
    names = [name for name in ("shared.weight", *_COPIES) if name in folder.tensors]
    shared = folder.floats(names[0] if names else "shared.weight")
    sources, words = (np.asarray(folder.tensors.pop(name, shared), np.float64) for name in _COPIES)
    for name, copy in zip(_COPIES, (sources, words), strict=True):
        if tied and not np.array_equal(copy, shared):
            raise InputError(
                f"Weight {name!r} in {folder.weights_path} is another vocabulary than "
                f"{names[0]!r}, though setting 'tie_word_embeddings' is true; set it to false if "
                "the model has both"
            )
    return words, None if np.array_equal(sources, words) else sources


def _positions(folder: Folder, name: str, model: TextDescription) -> Floats:
    """Return the vectors of all places, [places, dim], computed if Pegasus' file lacks them."""
    if name in folder.tensors or folder.kind != "pegasus":
        return folder.floats(name)
    if model.positions * model.dim > MOST_NUMBERS:
        raise InputError(
            f"Setting 'max_position_embeddings' in {folder.config_path} must be at most "
            f"{MOST_NUMBERS // model.dim} where the file has no positions, not {model.positions}"
        )
    half = (model.dim + 1) // 2
    speeds = 10000.0 ** (-2 * np.arange(half) / model.dim)
    angles = np.arange(model.positions)[:, None] * speeds
    return np.concatenate([np.sin(angles), np.cos(angles[:, : model.dim - half])], axis=1)
