"""Import of decoders like Llama and GPT-2 from Hugging Face folders."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.files import within
from celosia.generators.frontend.hugging_face_folder import Folder, own_name
from celosia.generators.frontend.rotary_speeds import Turning, rope_settings, rotary_speeds
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_families import REFUSED, TEXT_FAMILIES, WHY, TextFamily
from celosia.generators.frontend.weights import Floats, Weights, check_weights

Tensors = dict[str, NDArray[np.generic]]
_WIDENING = 4
"""Width of a hidden layer relative to the stream's if the configuration has none."""


_FUSED = {"attention": ("query", "key", "value"), "gate_up": ("gate", "up")}
"""Parts of a layer that one tensor of a file holds."""


def load_hugging_face_text(folder: Path) -> tuple[TextDescription, Weights]:
    """Return the description and weights of the decoder in a Hugging Face folder.

    Weights include factors from config.json, such as ``residual_multiplier``. In queries and keys,
    two columns that are rotated together are adjacent. A sliding window or LongRoPE may limit the
    length of texts (``positions``). Raises :class:`InputError` if a part is not supported.
    """
    model_folder = Folder(folder)
    kind = model_folder.config.get("model_type")
    if kind in REFUSED:
        raise InputError(
            f"Model type {kind!r} in {model_folder.config_path} is not run: {REFUSED[kind]}"
        )
    if kind not in TEXT_FAMILIES:
        raise InputError(
            f"Model type {kind!r} in {model_folder.config_path} is not one of "
            f"{', '.join(TEXT_FAMILIES)}"
        )
    family = TEXT_FAMILIES[kind]
    biased = {
        part
        for parts, setting in family.biased.items()
        if not setting or model_folder.config[setting]
        for part in parts.split()
    }
    rope: Mapping[str, Any] = {}
    if family.constants["position"] == "rotary":
        rope = rope_settings(model_folder, partial=family.partial)
    fields = _fields(model_folder, family, rope)
    with within(model_folder.config_path):
        model = TextDescription(bias=bool(biased), **fields)
    turning = rotary_speeds(model_folder, rope, model.head_dim) if rope else None
    model_folder.read((family.prefix,))
    tensors: Tensors = {}
    # A name behind "layers." is that of a part which another module outside of the layers has, too.
    own = {k[7:]: v for k, v in family.tensors.items() if k.startswith("layers.")}
    parts = {**family.tensors, **own}
    for theirs in list(model_folder.tensors):
        ours = own_name(theirs, family.layer, parts, family.tensors)
        module, _, part = ours.removeprefix("layers.").rpartition(".")
        extra = part == "bias" and "norm" not in module and module.partition(".")[2] not in biased
        extra = extra and not (set(_FUSED.get(module.partition(".")[2], "-")) <= biased)
        if ours and not extra and not (family.plain_norms and "norm" in ours):
            tensors[ours] = model_folder.take(theirs)
        elif re.fullmatch(family.ignored, theirs):
            del model_folder.tensors[theirs]
    model_folder.nothing_left()
    model = _tied(tensors, model, model_folder, family)
    with within(model_folder.weights_path):
        arranged = _arranged(tensors, model, family, model_folder)
        return _in_one_form(_filled(arranged, model, family, biased), model, model_folder, turning)


def _tied(
    tensors: Tensors, model: TextDescription, folder: Folder, family: TextFamily
) -> TextDescription:
    """Return a model that is tied if its file's head is the vocabulary.

    If settings demand this and the file has another head, the file's head is used.
    """
    words, head = (tensors.get(name) for name in ("words", "head.weight"))
    if not model.tied:
        if head is None:
            name = next(theirs for theirs, ours in family.tensors.items() if ours == "head")
            raise InputError(
                f"Weight '{name}.weight' is missing in {folder.weights_path}, and setting "
                f"'tie_word_embeddings' in {folder.config_path} is false"
            )
        return model
    if words is None and head is not None:
        tensors["words"] = head
    elif head is not None and not np.array_equal(np.asarray(head), np.asarray(words)):
        return model.replace(tied=False)
    tensors.pop("head.weight", None)
    return model


def _fields(folder: Folder, family: TextFamily, rope: Mapping[str, Any]) -> dict[str, Any]:
    config, path = folder.config, folder.config_path
    folder.no_setting_left({**family.only, **dict.fromkeys(family.unset)}, WHY)
    values: dict[str, Any] = {ours: config[theirs] for theirs, ours in family.fields.items()}
    values["kv_heads"] = config.get("num_key_value_heads") or values["heads"]
    if "ffn" not in values:
        values["ffn"] = (
            config.get("n_inner") or config.get("intermediate_size") or (_WIDENING * values["dim"])
        )
    if (config.get("word_embed_proj_dim") or values["dim"]) != values["dim"]:
        raise InputError(f"Setting 'word_embed_proj_dim' in {path} must be {values['dim']}")
    if folder.kind == "smollm3":
        values["rotated"] = _rotated(folder, values["layers"])
    named = config[family.activation]
    config[family.activation] = family.activations.get(named, named)
    if (config.get("hidden_activation") or config.get("hidden_act")) != config.get("hidden_act"):
        folder.only("hidden_activation", config["hidden_act"], ": it must be that of 'hidden_act'")
    places = [_window(folder, family, values["layers"], values.get("rotated", "1"))]
    if rope.get("rope_type") == "longrope":
        places.append(rope["original_max_position_embeddings"])
    elif rope.get("rope_type") == "dynamic":
        places.append(values["positions"])
    values["bounded"] = any(places)
    values["positions"] = min(limit for limit in (*places, values["positions"]) if limit)
    return {
        "name": folder.path.name,
        "activation": folder.activation(family.activation),
        "epsilon": float(config.get(family.epsilon, TextDescription.epsilon)),
        "tied": config["tie_word_embeddings"],
        "head_dim": config.get("head_dim") or 0,
        **values,
        **family.constants,
    }


def _rotated(folder: Folder, layers: int) -> str:
    """Return the layers of SmolLM3 with rotary positions, as a pattern of digits 0 and 1."""
    switches, every = folder.config.get("no_rope_layers"), folder.config["no_rope_layer_interval"]
    if switches is None:
        switches = [(layer + 1) % every != 0 for layer in range(layers)]
    if len(switches) < layers or not any(switches[:layers]):
        raise InputError(
            f"Setting 'no_rope_layers' in {folder.config_path} must have {layers} layers and a 1 "
            f"for at least one of them; without it every layer with a number divisible by "
            f"'no_rope_layer_interval', which is {every}, has none"
        )
    digits = "".join(str(int(bool(switch))) for switch in switches[:layers])
    periods = (digits[:length] for length in range(1, layers + 1))
    return next(period for period in periods if (period * layers)[:layers] == digits)


def _window(folder: Folder, family: TextFamily, layers: int, rotated: str) -> int:
    """Return the most tokens that a layer attends to, or 0 if it attends to all."""
    config = folder.config
    width = int(config.get(family.window) or 0)
    if not family.window_layers:
        return width
    kinds = config.get(family.window_layers)
    if kinds is None and "attention_types" in config:
        kinds = [kind for some, times in config["attention_types"] for kind in times * some]
    elif kinds is None:
        slides = layers > config.get("max_window_layers", layers) or "0" in rotated
        return width if slides and config["use_sliding_window"] else 0
    if len(kinds) != layers:
        raise InputError(
            f"Setting {family.window_layers!r} in {folder.config_path} must have {layers} layers, "
            f"not {len(kinds)}"
        )
    if not {"sliding_attention", "local"} & set(kinds):
        return 0
    if not width or not config.get("use_sliding_window", True):
        raise InputError(
            f"Setting {family.window!r} in {folder.config_path} must be given and in use where "
            f"{family.window_layers!r} has layers with a window"
        )
    return width


def _arranged(
    tensors: Tensors, model: TextDescription, family: TextFamily, folder: Folder
) -> dict[str, Floats]:
    """Return tensors with matrices as [outputs, inputs], and projections apart."""
    arranged: dict[str, Floats] = {}
    for name, tensor in sorted(tensors.items()):
        value = np.asarray(tensor, np.float64)
        matrix = name.startswith("layers.") and value.ndim == 2
        value = value.T if family.inputs_first and matrix else value
        prefix, kind, part = name.rsplit(".", 2) if name.count(".") > 1 else ("", name, "")
        if kind == "attention":
            arranged |= _apart(
                f"{prefix}.", part, value, model, interleaved=folder.kind == "gpt_neox"
            )
        elif kind == "gate_up":
            half = len(value) // 2
            arranged[f"{prefix}.gate.{part}"], arranged[f"{prefix}.up.{part}"] = (
                value[:half],
                value[half:],
            )
        elif name == "positions":
            first = family.first_position
            arranged[name] = value[first : first + model.positions]
        elif name.endswith("norm.weight"):
            arranged[name] = value + family.gain_above
        else:
            arranged[name] = value
    return arranged


def _apart(
    prefix: str, part: str, value: Floats, model: TextDescription, *, interleaved: bool
) -> dict[str, Floats]:
    widths = [model.query_width, model.kv_width, model.kv_width]
    if len(value) != sum(widths):
        raise InputError(
            f"Weight '{prefix}attention.{part}' must have {sum(widths)} outputs, not {len(value)}"
        )
    if interleaved:
        heads = value.reshape(model.heads, 3, model.head_dim, *value.shape[1:])
        parts = [heads[:, part_number].reshape(-1, *value.shape[1:]) for part_number in range(3)]
    else:
        parts = np.split(value, np.cumsum(widths)[:2])
    names = ("query", "key", "value")
    return {
        f"{prefix}{projection}.{part}": rows for projection, rows in zip(names, parts, strict=True)
    }


def _filled(
    tensors: dict[str, Floats], model: TextDescription, family: TextFamily, biased: Collection[str]
) -> dict[str, Floats]:
    """Return tensors with those that the family lacks: biases of 0, gains of 1."""
    for name, shape in model.shapes().items():
        module, _, part = name.rpartition(".")
        if "norm" in module:
            if family.plain_norms:
                tensors[name] = np.full(shape, float(part == "weight"))
        elif part == "bias" and module.rpartition(".")[2] not in biased:
            tensors[name] = np.zeros(shape)
    return tensors


def _in_one_form(
    tensors: dict[str, Floats], model: TextDescription, folder: Folder, turning: Turning | None
) -> tuple[TextDescription, Weights]:
    """Return a model whose weights include the factors of its settings."""
    config, scaled = folder.config, 1.0
    if folder.kind == "gemma":
        scaled = model.dim**0.5
    scaled *= float(config.get("embedding_multiplier", 1.0))
    logits = float(config.get("logits_scaling", 1.0))
    if (scaled != 1.0 or logits != 1.0) and "words" in tensors:
        head = tensors["words"] if model.tied else tensors["head.weight"]
        tensors["head.weight"], model = head / logits, model.replace(tied=False)
        tensors["words"] = scaled * tensors["words"]
    factor = float(config.get("attention_multiplier", model.head_dim**-0.5))
    if TEXT_FAMILIES[folder.kind].unscaled or not config.get("scale_attn_weights", True):
        factor = 1.0
    queries, turned = factor * model.head_dim**0.5, np.ones(model.head_dim)
    if turning:
        base, speeds, times = turning
        model = model.replace(rotary_base=base)
        plain = base ** (-np.arange(0, model.head_dim, 2) / model.head_dim)
        rotated = 2 * int(np.count_nonzero(speeds))
        tensors = _side_by_side(tensors, model, rotated)
        turned = np.where(np.arange(model.head_dim) < rotated, times**2, 1.0)
        if not np.allclose(speeds, plain, rtol=1e-9, atol=0):
            model = model.replace(rotary_speeds=True)
            tensors["rotary_speeds"] = speeds
    residual = float(config.get("residual_multiplier", 1.0))
    scaled_part = ".query_norm." if model.head_norms else ".query."
    for name in list(tensors):
        if scaled_part in name and len(tensors[name]) % model.head_dim == 0:
            turns = model.rotates(int(name.split(".")[1]))
            heads = len(tensors[name]) // model.head_dim
            rows = np.tile(queries * (turned if turns else np.ones_like(turned)), heads)
            tensors[name] = (rows * tensors[name].T).T
        elif re.search(r"\.(output|down)\.", name):
            tensors[name] = residual * tensors[name]
    return model, check_weights(tensors, model)


def _side_by_side(
    tensors: Mapping[str, Floats], model: TextDescription, rotated: int
) -> dict[str, Floats]:
    """Return tensors in which the rows of queries and keys have a pair's columns together.

    In each head the first ``rotated`` columns are rotated; the two columns of a pair are half of
    these apart.
    """
    order = np.arange(rotated).reshape(2, rotated // 2).T.ravel()
    order = np.concatenate([order, np.arange(rotated, model.head_dim)])
    reordered = dict(tensors)
    for name, tensor in tensors.items():
        if re.search(r"\.(query|key)(_norm)?\.", name) and len(tensor) % model.head_dim == 0:
            heads = tensor.reshape(-1, model.head_dim, *tensor.shape[1:])
            reordered[name] = heads[:, order].reshape(tensor.shape)
    return reordered
