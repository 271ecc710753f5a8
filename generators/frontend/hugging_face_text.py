"""Model folders as Hugging Face's libraries write them, of decoders like Llama and GPT-2."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from generators.frontend.hugging_face_folder import (
    ACTIVATIONS,
    CONFIG_FILE,
    WEIGHTS_FILE,
    read_json,
)
from generators.frontend.text_description import TextDescription
from generators.frontend.weights import Weights, check_weights, read_tensors

Tensors = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class _Family:
    """How models of one kind name their fields and tensors."""

    fields: Mapping[str, str]
    """A description's field by the configuration's name of it."""
    activation: str
    """The configuration's name of the activation function."""
    epsilon: str
    """The configuration's name of what norms add to the variance."""
    only: Mapping[str, Any]
    """Settings of which one value is supported, and it."""
    constants: Mapping[str, Any]
    """Fields of a description that all models of the kind share."""
    prefix: str
    """Prefix of the decoder's tensors."""
    layer: str
    """Prefix of layer 0 but for its number."""
    tensors: Mapping[str, str]
    """Our name of each tensor outside of the layers, and of each part of a layer."""
    ignored: re.Pattern[str]
    """Tensors that hold no weights."""
    tied: bool
    """Whether the head is the vocabulary where the configuration does not tell."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The configuration's name of another field to take where a field is not given."""


_LLAMA = _Family(
    fields={
        "hidden_size": "dim",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "intermediate_size": "ffn",
        "vocab_size": "vocabulary",
        "max_position_embeddings": "positions",
    },
    activation="hidden_act",
    epsilon="rms_norm_eps",
    only={"rope_scaling": None, "partial_rotary_factor": 1.0, "sliding_window": None},
    constants={"norm": "rmsnorm", "position": "rotary", "gated": True},
    prefix="model.",
    layer="layers.",
    tensors={
        "embed_tokens": "words",
        "norm": "final_norm",
        "lm_head": "head",
        "input_layernorm": "attention_norm",
        "self_attn.q_proj": "query",
        "self_attn.k_proj": "key",
        "self_attn.v_proj": "value",
        "self_attn.o_proj": "output",
        "post_attention_layernorm": "mlp_norm",
        "mlp.gate_proj": "gate",
        "mlp.up_proj": "up",
        "mlp.down_proj": "down",
    },
    ignored=re.compile(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),
    tied=False,
    defaults={"num_key_value_heads": "num_attention_heads"},
)
_GPT2 = _Family(
    fields={
        "n_embd": "dim",
        "n_layer": "layers",
        "n_head": "heads",
        "vocab_size": "vocabulary",
        "n_positions": "positions",
    },
    activation="activation_function",
    epsilon="layer_norm_epsilon",
    only={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    constants={"norm": "layernorm", "position": "learned", "gated": False, "bias": True},
    prefix="transformer.",
    layer="h.",
    tensors={
        "wte": "words",
        "wpe": "positions",
        "ln_f": "final_norm",
        "lm_head": "head",
        "ln_1": "attention_norm",
        "attn.c_attn": "attention",
        "attn.c_proj": "output",
        "ln_2": "mlp_norm",
        "mlp.c_fc": "up",
        "mlp.c_proj": "down",
    },
    ignored=re.compile(r"h\.\d+\.attn\.(masked_)?bias"),
    tied=True,
)
TEXT_FAMILIES = {"llama": _LLAMA, "gpt2": _GPT2}
"""The kinds of decoders that are read, by the configuration's ``model_type``."""
_WIDENING = 4
"""How much wider than the stream GPT-2's hidden layer is where its configuration does not tell."""
_ROTARY_BASE = 10000.0


def load_hugging_face_text(folder: Path, name: str = "") -> tuple[TextDescription, Weights]:
    """Return the description and weights of a folder with config.json and model.safetensors.

    Llama's queries and keys come with the columns of a pair half a head apart, and leave beside
    each other; GPT-2's matrices come as [inputs, outputs] and leave as [outputs, inputs].

    Raises :class:`InputError` where a file cannot be read, or names something that is not
    supported.
    """
    path = folder / CONFIG_FILE
    config = read_json(path)
    kind = config.get("model_type")
    if kind not in TEXT_FAMILIES:
        raise InputError(f"Model type {kind!r} in {path} is not one of {', '.join(TEXT_FAMILIES)}")
    family = TEXT_FAMILIES[kind]
    model = _describe(path, config, family, name or folder.name)
    found: Tensors = {}
    unknown = []
    for theirs, tensor in read_tensors(folder / WEIGHTS_FILE).items():
        inside = theirs.removeprefix(family.prefix)
        ours = _own_name(inside, family)
        if ours:
            found[ours] = tensor
        elif not family.ignored.fullmatch(inside):
            unknown.append(theirs)
    if unknown:
        raise InputError(
            f"Weights {folder / WEIGHTS_FILE} hold tensors that a model of type {kind} does not "
            f"have: {', '.join(sorted(unknown))}"
        )
    if model.tied:
        # Some files repeat the vocabulary.
        found.pop("head.weight", None)
    try:
        arranged = _side_by_side(found, model) if kind == "llama" else _outputs_first(found, model)
        return model, check_weights(arranged, model)
    except InputError as error:
        raise InputError(f"{error} in {folder / WEIGHTS_FILE}") from error


def _describe(path: Path, config: Mapping[str, Any], family: _Family, name: str) -> TextDescription:
    for setting, value in family.only.items():
        if config.get(setting, value) != value:
            raise InputError(
                f"Setting {setting!r} in {path} must be {value!r}, not {config[setting]!r}"
            )
    given = {**config}
    for missing, other in family.defaults.items():
        if given.get(missing) is None:
            given[missing] = given.get(other)
    values: dict[str, Any] = {}
    for theirs, ours in family.fields.items():
        if not isinstance(given.get(theirs), int):
            raise InputError(f"Configuration {path} must give the integer {theirs!r}")
        values[ours] = given[theirs]
    activation = config.get(family.activation)
    if activation not in ACTIVATIONS:
        raise InputError(
            f"Activation {activation!r} in {path} is not one of {', '.join(ACTIVATIONS)}"
        )
    if family is _LLAMA:
        values |= _rotary(path, config)
        if bool(config.get("attention_bias")) != bool(config.get("mlp_bias")):
            raise InputError(
                f"Setting 'attention_bias' in {path} must be that of 'mlp_bias', "
                f"not {config.get('attention_bias')!r}"
            )
        values["bias"] = bool(config.get("attention_bias"))
        values["head_dim"] = config.get("head_dim") or 0
    else:
        values["ffn"] = config.get("n_inner") or _WIDENING * values["dim"]
    try:
        return TextDescription(
            name=name,
            activation=ACTIVATIONS[activation],
            epsilon=float(config.get(family.epsilon, TextDescription.epsilon)),
            tied=bool(config.get("tie_word_embeddings", family.tied)),
            **values,
            **family.constants,
        )
    except InputError as error:
        raise InputError(f"{error} in {path}") from error


def _rotary(path: Path, config: Mapping[str, Any]) -> dict[str, float]:
    rope = config.get("rope_parameters") or {}
    kind = rope.get("rope_type", "default")
    if kind != "default":
        raise InputError(f"Setting 'rope_type' in {path} must be 'default', not {kind!r}")
    base = rope.get("rope_theta", config.get("rope_theta", _ROTARY_BASE))
    return {"rotary_base": float(base)}


def _own_name(name: str, family: _Family) -> str:
    """Return our name of a tensor, empty where it is not known."""
    module, _, part = name.rpartition(".")
    if part not in ("weight", "bias"):
        return ""
    number, _, inside = module.removeprefix(family.layer).partition(".")
    if module.startswith(family.layer) and number.isdigit():
        ours = family.tensors.get(inside)
        return f"layers.{number}.{ours}.{part}" if ours else ""
    ours = family.tensors.get(module, "")
    return ours if ours in ("words", "positions") else f"{ours}.{part}" if ours else ""


def _side_by_side(tensors: Tensors, model: TextDescription) -> Tensors:
    """Return tensors in which the rows of queries and keys have a pair's columns together."""
    half = model.head_dim // 2
    order = np.arange(model.head_dim).reshape(2, half).T.ravel()
    found = dict(tensors)
    for name, tensor in tensors.items():
        if re.search(r"\.(query|key)\.", name) and len(tensor) % model.head_dim == 0:
            heads = tensor.reshape(-1, model.head_dim, *tensor.shape[1:])
            found[name] = heads[:, order].reshape(tensor.shape)
    return found


def _outputs_first(tensors: Tensors, model: TextDescription) -> Tensors:
    """Return tensors with matrices transposed, and queries, keys and values apart."""
    found: Tensors = {}
    for name, tensor in sorted(tensors.items()):
        matrix = name.startswith("layers.") and tensor.ndim == 2
        turned = tensor.T if matrix else tensor
        prefix, kind, part = name.rsplit(".", 2) if name.count(".") > 1 else ("", "", "")
        if kind != "attention":
            found[name] = turned
            continue
        if len(turned) != 3 * model.dim:
            raise InputError(
                f"Weight {name!r} must have {3 * model.dim} outputs, not {len(turned)}"
            )
        for index, ours in enumerate(("query", "key", "value")):
            rows = slice(index * model.dim, (index + 1) * model.dim)
            found[f"{prefix}.{ours}.{part}"] = turned[rows]
    return found
