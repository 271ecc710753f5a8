"""Model folders as Hugging Face's libraries write them, of decoders like Llama and GPT-2."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from arch.files import within
from generators.frontend.hugging_face_folder import Folder
from generators.frontend.rotary_speeds import rotary_speeds
from generators.frontend.text_description import TextDescription
from generators.frontend.text_families import REFUSED, TEXT_FAMILIES, WHY, TextFamily
from generators.frontend.weights import Floats, Weights, check_weights

Tensors = dict[str, NDArray[np.generic]]
_WIDENING = 4
"""Width of a hidden layer relative to the stream's where the configuration has none."""


def load_hugging_face_text(folder: Path) -> tuple[TextDescription, Weights]:
    """Return the description and weights of a folder with config.json and model.safetensors.

    Whatever a kind of models does otherwise is brought into the one form that a description has:
    rotated pairs lie beside each other, matrices are [outputs, inputs], queries, keys and values
    are apart, and factors of embeddings, scores, residuals and logits are in the weights. Where a
    layer attends to a window of tokens only, the model has no more places than the window.

    Raises :class:`InputError` where a file cannot be read, or names something that is not
    supported.
    """
    given = Folder(folder)
    kind = given.config.get("model_type")
    if kind in REFUSED:
        raise InputError(f"Model type {kind!r} in {given.config_path} is not run: {REFUSED[kind]}")
    if kind not in TEXT_FAMILIES:
        raise InputError(
            f"Model type {kind!r} in {given.config_path} is not one of {', '.join(TEXT_FAMILIES)}"
        )
    family = TEXT_FAMILIES[kind]
    given.read((family.prefix,))
    found: Tensors = {}
    for theirs in list(given.tensors):
        ours = _own_name(theirs, family)
        if ours:
            found[ours] = given.take(theirs)
        elif re.fullmatch(family.ignored, theirs):
            del given.tensors[theirs]
    fields = _fields(given, family)
    given.nothing_left()
    if fields["tied"]:
        # Some files repeat the vocabulary.
        found.pop("head.weight", None)
    fields["bias"] = any(
        one.endswith(".bias") and "norm" not in one and one.startswith("layers.") for one in found
    ) or any(setting and given.config.get(setting) for setting in family.biased.values())
    with within(given.config_path):
        model = TextDescription(**fields)
    with within(given.weights_path):
        arranged = _arranged(found, model, family, given)
        return _in_one_form(arranged, model, given)


def _own_name(name: str, family: TextFamily) -> str:
    """Return our name of a tensor, empty where it is not known."""
    module, _, part = name.rpartition(".")
    if part not in ("weight", "bias"):
        return ""
    number, _, inside = module.removeprefix(family.layer).partition(".")
    if module.startswith(family.layer) and number.isdigit():
        ours = family.tensors.get(f"layers.{inside}") or family.tensors.get(inside)
        return f"layers.{number}.{ours}.{part}" if ours else ""
    ours = family.tensors.get(module, "")
    return ours if ours in ("words", "positions") else f"{ours}.{part}" if ours else ""


def _fields(given: Folder, family: TextFamily) -> dict[str, Any]:
    config, path = given.config, given.config_path
    for setting, value in {**family.only, **dict.fromkeys(family.unset)}.items():
        given.only(setting, value, WHY.get(setting, ""))
    for missing, other in family.defaults.items():
        if config.get(missing) is None:
            config[missing] = config.get(other)
    values: dict[str, Any] = {ours: given.integer(theirs) for theirs, ours in family.fields.items()}
    if "ffn" not in values:
        values["ffn"] = (
            config.get("n_inner") or config.get("intermediate_size") or (_WIDENING * values["dim"])
        )
    if config.get("word_embed_proj_dim", values["dim"]) != values["dim"]:
        raise InputError(f"Setting 'word_embed_proj_dim' in {path} must be {values['dim']}")
    if not all(config.get("no_rope_layers") or [1]):
        raise InputError(f"Setting 'no_rope_layers' in {path} must be 1 for all layers")
    activation = given.activation(
        "hidden_activation" if config.get("hidden_activation") else family.activation
    )
    values["positions"] = min(values["positions"], *_windows(given, values["positions"]))
    return {
        "name": given.path.name,
        "activation": activation,
        "epsilon": given.number(config, family.epsilon, TextDescription.epsilon),
        "tied": bool(config.get("tie_word_embeddings", family.tied)),
        "head_dim": config.get("head_dim") or 0,
        **values,
        **family.constants,
    }


def _windows(given: Folder, positions: int) -> list[int]:
    """Return how many tokens layers attend to, ``positions`` where it is all of them."""
    config, found = given.config, [positions]
    layers = config.get("layer_types") or config.get("attention_layers")
    slides = layers is None or any(one in ("sliding_attention", "local") for one in layers)
    window = config.get("sliding_window") or config.get("window_size")
    if window and slides and config.get("use_sliding_window", True):
        if not isinstance(window, int):
            raise InputError(
                f"Setting 'sliding_window' in {given.config_path} must be an integer, "
                f"not {window!r}"
            )
        found.append(window)
    return found


def _arranged(
    tensors: Tensors, model: TextDescription, family: TextFamily, given: Folder
) -> dict[str, Floats]:
    """Return tensors with matrices as [outputs, inputs], and projections apart."""
    found: dict[str, Floats] = {}
    for name, tensor in sorted(tensors.items()):
        value = np.asarray(tensor, np.float64)
        matrix = name.startswith("layers.") and value.ndim == 2
        value = value.T if family.inputs_first and matrix else value
        prefix, kind, part = name.rsplit(".", 2) if name.count(".") > 1 else ("", name, "")
        if kind == "attention":
            found |= _apart(f"{prefix}.", part, value, model, interleaved=given.kind == "gpt_neox")
        elif kind == "gate_up":
            half = len(value) // 2
            found[f"{prefix}.gate.{part}"], found[f"{prefix}.up.{part}"] = (
                value[:half],
                value[half:],
            )
        elif name == "positions":
            first = family.first_position
            found[name] = value[first : first + model.positions]
        elif name.endswith("norm.weight"):
            found[name] = value + family.gain_above
        else:
            found[name] = value
    return _filled(found, model, family, given)


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
        parts = [heads[:, one].reshape(-1, *value.shape[1:]) for one in range(3)]
    else:
        parts = np.split(value, np.cumsum(widths)[:2])
    names = ("query", "key", "value")
    return {f"{prefix}{one}.{part}": rows for one, rows in zip(names, parts, strict=True)}


def _filled(
    found: dict[str, Floats], model: TextDescription, family: TextFamily, given: Folder
) -> dict[str, Floats]:
    """Return tensors with what no layer of the kind has: biases of 0, gains of 1."""
    had = {re.sub(r"\d+", "N", name) for name in found}
    for parts, setting in family.biased.items():
        if not setting or given.config.get(setting):
            # These must be there; a missing one is named.
            had |= {f"layers.N.{part}.bias" for part in parts.split()}
    for name, shape in model.shapes().items():
        part = re.sub(r"\d+", "N", name)
        if name in found or part in had:
            continue
        if name.endswith(".bias"):
            found[name] = np.zeros(shape)
        elif family.plain_norms and name.endswith("norm.weight"):
            found[name] = np.ones(shape)
    return found


def _in_one_form(
    found: dict[str, Floats], model: TextDescription, given: Folder
) -> tuple[TextDescription, Weights]:
    """Return a model whose weights have taken in what its settings ask for."""
    config, scaled = given.config, 1.0
    if given.kind == "gemma":
        scaled = model.dim**0.5
    scaled *= float(config.get("embedding_multiplier", 1.0))
    logits = float(config.get("logits_scaling", 1.0))
    if (scaled != 1.0 or logits != 1.0) and "words" in found:
        head = found["words"] if model.tied else found.get("head.weight", found["words"])
        found["head.weight"], model = head / logits, model.replace(tied=False)
        found["words"] = scaled * found["words"]
    factor = float(config.get("attention_multiplier", model.head_dim**-0.5))
    factor = 1.0 if TEXT_FAMILIES[given.kind].unscaled else factor
    queries = factor * model.head_dim**0.5
    if model.position == "rotary":
        base, speeds, times = rotary_speeds(given, model.head_dim, model.positions)
        queries *= times**2
        model = model.replace(rotary_base=base)
        plain = base ** (-np.arange(0, model.head_dim, 2) / model.head_dim)
        rotated = 2 * int(np.count_nonzero(speeds))
        found = _side_by_side(found, model, rotated)
        if not np.allclose(speeds, plain, rtol=1e-9, atol=0):
            model = model.replace(rotary_speeds=True)
            found["rotary_speeds"] = speeds
    residual = float(config.get("residual_multiplier", 1.0))
    for name in list(found):
        if ".query." in name:
            found[name] = queries * found[name]
        elif re.search(r"\.(output|down)\.", name):
            found[name] = residual * found[name]
    return model, check_weights(found, model)


def _side_by_side(
    tensors: Mapping[str, Floats], model: TextDescription, rotated: int
) -> dict[str, Floats]:
    """Return tensors in which the rows of queries and keys have a pair's columns together.

    Of each head the first ``rotated`` columns are rotated, those of a pair half of these apart.
    """
    order = np.arange(rotated).reshape(2, rotated // 2).T.ravel()
    order = np.concatenate([order, np.arange(rotated, model.head_dim)])
    found = dict(tensors)
    for name, tensor in tensors.items():
        if re.search(r"\.(query|key)\.", name) and len(tensor) % model.head_dim == 0:
            heads = tensor.reshape(-1, model.head_dim, *tensor.shape[1:])
            found[name] = heads[:, order].reshape(tensor.shape)
    return found
