"""Model folders as Hugging Face's libraries write them, of encoders like BERT."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from generators.frontend.description import ModelDescription
from generators.frontend.weights import Weights, check_weights, read_tensors

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
DEFAULT_TOKENS = 128
"""Longest input where the caller asks for none and the folder allows it (tokens)."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""The name in a description of each activation of a configuration."""

_HEADS = re.compile(r"(pooler|cls|classifier|lm_head|vocab_\w+|pre_classifier|qa_outputs)\.")
"""Tensors behind the encoder, which embeddings do not use."""
_POSITIONS = re.compile(r"embeddings\.(position|token_type)_ids$")
_NORM_PARTS = {"gamma": "weight", "beta": "bias"}


@dataclass(frozen=True)
class _Family:
    """How models of one kind name their fields and tensors."""

    fields: Mapping[str, str]
    """A description's field by the configuration's name of it."""
    layer: str
    """Prefix of layer 0 but for its number."""
    parts: Mapping[str, str]
    """Our name of each part of a layer."""
    first_position: int = 0
    """The row of the table of positions that the first token takes."""
    epsilon: float = 1e-12
    """What norms add where the configuration does not tell."""


_BERT = _Family(
    {
        "hidden_size": "dim",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "intermediate_size": "ffn",
        "vocab_size": "vocabulary",
    },
    "encoder.layer.",
    {
        "attention.self.query": "query",
        "attention.self.key": "key",
        "attention.self.value": "value",
        "attention.output.dense": "output",
        "attention.output.LayerNorm": "attention_norm",
        "intermediate.dense": "up",
        "output.dense": "down",
        "output.LayerNorm": "mlp_norm",
    },
)
_ROBERTA = _Family(_BERT.fields, _BERT.layer, _BERT.parts, 2, 1e-5)
_DISTILBERT = _Family(
    {
        "dim": "dim",
        "n_layers": "layers",
        "n_heads": "heads",
        "hidden_dim": "ffn",
        "vocab_size": "vocabulary",
    },
    "transformer.layer.",
    {
        "attention.q_lin": "query",
        "attention.k_lin": "key",
        "attention.v_lin": "value",
        "attention.out_lin": "output",
        "sa_layer_norm": "attention_norm",
        "ffn.lin1": "up",
        "ffn.lin2": "down",
        "output_layer_norm": "mlp_norm",
    },
)
FAMILIES = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": _DISTILBERT,
}
"""The kinds of models that are read, by the configuration's ``model_type``."""
_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "words",
    "embeddings.position_embeddings.weight": "positions",
    "embeddings.token_type_embeddings.weight": "types",
}


def is_hugging_face(folder: Path) -> bool:
    """Return whether a folder looks like one of Hugging Face's."""
    return (folder / CONFIG_FILE).is_file()


def load_hugging_face(
    folder: Path, name: str = "", tokens: int = 0
) -> tuple[ModelDescription, Weights]:
    """Return the description and weights of a folder with config.json and model.safetensors.

    The model takes texts of at most ``tokens`` tokens; without it of 128, or as many as it can.
    ``modules.json`` of Sentence Transformers decides on pooling and on outputs of length 1;
    without that file the output is the whole sequence.

    Raises :class:`InputError` where a file cannot be read, or names something that is not
    supported.
    """
    config = read_json(folder / CONFIG_FILE)
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise InputError(
            f"Model type {kind!r} in {folder / CONFIG_FILE} is not one of {', '.join(FAMILIES)}"
        )
    family = FAMILIES[kind]
    tensors = _read_encoder(folder / WEIGHTS_FILE, kind)
    description = _describe(folder, config, family, tensors, name or folder.name, tokens)
    positions = slice(family.first_position, family.first_position + description.tokens)
    found: dict[str, NDArray[np.generic]] = {}
    unknown = []
    for theirs, tensor in tensors.items():
        ours = _own_name(theirs, family)
        if not ours:
            unknown.append(theirs)
        else:
            found[ours] = tensor[positions] if ours == "positions" else tensor
    if unknown:
        raise InputError(
            f"Weights {folder / WEIGHTS_FILE} hold tensors that a model of type {kind} does not "
            f"have: {', '.join(sorted(unknown))}"
        )
    try:
        return description, check_weights(found, description)
    except InputError as error:
        raise InputError(f"{error} in {folder / WEIGHTS_FILE}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; raise :class:`InputError` where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"File {path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"File {path} must hold a JSON object")
    return found


def _read_encoder(path: Path, kind: str) -> dict[str, NDArray[np.generic]]:
    """Return the encoder's tensors by name, without the model's own prefix."""
    found = {}
    for name, tensor in read_tensors(path).items():
        inside = name.removeprefix(f"{kind}.").removeprefix("roberta.")
        if not _HEADS.match(inside) and not _POSITIONS.search(inside):
            found[inside] = tensor
    return found


def _own_name(name: str, family: _Family) -> str:
    """Return our name of a tensor, empty where it is not known."""
    if name in _EMBEDDINGS:
        return _EMBEDDINGS[name]
    module, _, part = name.rpartition(".")
    part = _NORM_PARTS.get(part, part)
    if part not in ("weight", "bias"):
        return ""
    if module == "embeddings.LayerNorm":
        return f"embedding_norm.{part}"
    number, _, inside = module.removeprefix(family.layer).partition(".")
    if module.startswith(family.layer) and inside in family.parts:
        return f"layers.{number}.{family.parts[inside]}.{part}"
    return ""


def _describe(
    folder: Path,
    config: Mapping[str, Any],
    family: _Family,
    tensors: Mapping[str, NDArray[np.generic]],
    name: str,
    tokens: int,
) -> ModelDescription:
    path = folder / CONFIG_FILE
    sizes = {}
    for theirs, ours in family.fields.items():
        if not isinstance(config.get(theirs), int):
            raise InputError(f"Configuration {path} must give the integer {theirs!r}")
        sizes[ours] = config[theirs]
    activation = config.get("hidden_act", config.get("activation"))
    if activation not in ACTIVATIONS:
        raise InputError(
            f"Activation {activation!r} in {path} is not one of {', '.join(ACTIVATIONS)}"
        )
    absolute = config.get("position_embedding_type", "absolute")
    if absolute != "absolute" or config.get("is_decoder"):
        raise InputError(f"Configuration {path} must be that of an encoder with absolute positions")
    places = tensors.get("embeddings.position_embeddings.weight")
    longest = 0 if places is None else len(places) - family.first_position
    if tokens > longest:
        raise InputError(f"Model {name} takes at most {longest} tokens, not {tokens}")
    types = tensors.get("embeddings.token_type_embeddings.weight")
    pooling, unit = _pooling(folder)
    return ModelDescription(
        name=name,
        tokens=tokens or min(DEFAULT_TOKENS, longest),
        embedding="tokens",
        types=0 if types is None else len(types),
        embedding_norm=True,
        variable=True,
        placement="post",
        final_norm=False,
        epsilon=float(config.get("layer_norm_eps", family.epsilon)),
        activation=ACTIVATIONS[activation],
        pooling=pooling,
        unit=unit,
        **sizes,
    )


def _pooling(folder: Path) -> tuple[str, bool]:
    """Return how Sentence Transformers makes one vector, and whether of length 1."""
    path = folder / "modules.json"
    if not path.is_file():
        return "none", False
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        kinds = [(str(module["type"]).rpartition(".")[2], module["path"]) for module in modules]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"File {path} is not a list of modules") from error
    pooling, unit = "none", False
    for kind, place in kinds:
        if kind == "Pooling":
            pooling = _pooling_mode(folder / str(place) / CONFIG_FILE)
        elif kind == "Normalize":
            unit = True
        elif kind != "Transformer":
            raise InputError(f"Module {kind} in {path} is not supported")
    return pooling, unit


def _pooling_mode(path: Path) -> str:
    modes = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "class"}
    given = [
        name
        for name, on in read_json(path).items()
        if name.startswith("pooling_mode_") and on is True
    ]
    if len(given) != 1 or given[0] not in modes:
        raise InputError(
            f"Pooling in {path} must be one of {', '.join(modes)}, not {', '.join(given)}"
        )
    return modes[given[0]]
