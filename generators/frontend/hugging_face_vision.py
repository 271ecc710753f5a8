"""Import of encoders of images and spectrograms from Hugging Face folders."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.files import within
from celosia.arch.tables import read_table
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.host_steps import (
    Array,
    HostStep,
    layer_norm,
    linear,
    rearrange,
    window_indices,
)
from celosia.generators.frontend.hugging_face_folder import TABLES, Folder
from celosia.generators.frontend.hugging_face_heads import HEADS, Head, drop_unused
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.weights import Floats, check_weights


@dataclass(frozen=True)
class _Family:
    """Names of the tensors of one family of models."""

    prefixes: tuple[str, ...]
    layer: str
    """Prefix of layer 0, without its number."""
    parts: Mapping[str, str]
    """Our name of each part of a layer."""
    patches: str
    """The convolution that makes vectors of patches."""
    tokens: tuple[str, ...]
    """Trained vectors before the patches."""
    positions: str
    norms: Mapping[str, str]
    """Our name of each norm outside of the layers."""


VISION_FAMILIES = {
    name: _Family(**values) for name, values in read_table(TABLES / "vision.toml").items()
}
"""The kinds of models that are read, by the configuration's ``model_type``."""
MOST_NUMBERS = 1 << 26
"""Most numbers of an input, or of its patches."""
_CLASSIFIERS = ("classifier.weight", "classifier.dense.weight", "cls_classifier.weight")
"""The weight of a head's last layer, which has an output for each class."""
_IDS = re.compile(r"embeddings\.position_ids$")


def load_hugging_face_vision(folder: Path, name: str = "") -> Source:
    """Return the encoder of images or spectrograms in a Hugging Face folder.

    An input is an image [channels, height, width] or a spectrogram [frames, bands], which the host
    cuts into patches. Raises :class:`InputError` if a file, setting or tensor is missing or not
    supported.
    """
    model_folder = Folder(folder)
    family = VISION_FAMILIES[model_folder.kind]
    name = name or folder.name
    why = {"use_swiglu_ffn": "; a gated MLP is not known in an encoder"}
    model_folder.no_setting_left(dict.fromkeys(why, False), why)
    shape, places = _patches(model_folder)
    model_folder.read(family.prefixes)
    rows, features = places.shape
    config, dim = model_folder.config, model_folder.config["hidden_size"]
    weight = model_folder.floats(f"{family.patches}.weight", -1, -1, -1, -1)
    if len(weight) != dim:
        raise InputError(
            f"Weight '{family.patches}.weight' in {model_folder.weights_path} must have {dim} "
            f"outputs, not {len(weight)}"
        )
    weight = weight.reshape(dim, -1)
    bias = np.zeros(dim)
    if f"{family.patches}.bias" in model_folder.tensors:
        bias = model_folder.floats(f"{family.patches}.bias", dim)
    if weight.shape[1] != features:
        raise InputError(
            f"Weight '{family.patches}.weight' in {model_folder.weights_path} must have {features} "
            f"inputs, not {weight.shape[1]}"
        )
    before = [rearrange("patches", f"{rows} patches of {features} numbers", places)]
    tokens = [_rows(model_folder, token_name, dim) for token_name in family.tokens]
    positions = _rows(model_folder, family.positions, dim)
    for name_of_token, token in zip(family.tokens, tokens, strict=True):
        if len(token) != 1:
            raise InputError(
                f"Weight {name_of_token!r} in {model_folder.weights_path} must be one vector, not "
                f"{len(token)}"
            )
    if len(positions) != rows + len(tokens):
        raise InputError(
            f"Weight {family.positions!r} in {model_folder.weights_path} must have "
            f"{rows + len(tokens)} places, not {len(positions)}"
        )
    layers, layer_weights = _layers(model_folder, family)
    norms: dict[str, Floats] = {}
    for theirs, ours in family.norms.items():
        for part in ("weight", "bias"):
            norms[f"{ours}.{part}"] = model_folder.floats(f"{theirs}.{part}", dim)
    epsilon = float(config["layer_norm_eps"])
    head = _head(model_folder, rows, dim, norms, epsilon)
    fields: dict[str, Any] = {
        "name": name,
        "tokens": rows,
        "features": features,
        "dim": dim,
        "layers": layers,
        "heads": config["num_attention_heads"],
        "ffn": config["mlp_ratio"] * dim if "mlp_ratio" in config else config["intermediate_size"],
        "class_token": True,
        "pooling": "none",
        "epsilon": epsilon,
        "activation": model_folder.activation("hidden_act"),
        "embedding_norm": "embedding_norm.weight" in norms,
        "final_norm": "final_norm.weight" in norms,
    }
    tensors = {**layer_weights, **norms, **head.weights}
    if len(tokens) == 1:
        tensors |= {"embed.weight": weight, "embed.bias": bias, "class_token": tokens[0][0]}
        tensors["positions"] = positions
    else:
        # With a distillation token besides the class token, the host embeds the patches.
        before.append(linear("patch embedding", "linear layer", weight, bias, rows=rows))
        before.append(_prepend(np.concatenate(tokens), positions))
        fields |= {
            "tokens": len(positions),
            "features": dim,
            "embedding": "none",
            "class_token": False,
            "positions": "none",
        }
    unused = drop_unused(model_folder, _IDS)
    model_folder.nothing_left()
    with within(model_folder.weights_path):
        description = ModelDescription(**fields | head.fields)
        weights = check_weights(tensors, description)
    return Source(
        description,
        weights,
        before=tuple(before),
        after=head.after,
        unused=tuple(sorted(unused)),
        labels=head.labels,
        path=folder,
        shape=shape,
    )


def _patches(folder: Folder) -> tuple[tuple[int, ...], Array]:
    """Return the shape of an input, and the places of the numbers of each patch."""
    config, size = folder.config, folder.config["patch_size"]
    sound = folder.kind == "audio-spectrogram-transformer"
    sides = config["image_size"] if not sound else [config["max_length"], config["num_mel_bins"]]
    sides = sides if isinstance(sides, list) else [sides] * 2
    if size > min(sides):
        raise InputError(
            f"Setting 'patch_size' in {folder.config_path} must be at most {min(sides)}, the "
            f"shorter side of an input, not {size}"
        )
    channels = 1 if sound else config["num_channels"]
    strides = (config["frequency_stride"], config["time_stride"]) if sound else (size, size)
    rows = [(side - size) // step + 1 for side, step in zip(sides, reversed(strides), strict=True)]
    numbers = channels * max(math.prod(sides), math.prod(rows) * size**2)
    if numbers > MOST_NUMBERS:
        raise InputError(
            f"Settings in {folder.config_path} make an input or its patches of {numbers} numbers, "
            f"of at most {MOST_NUMBERS}"
        )
    if sound:
        shape: tuple[int, ...] = tuple(sides)
        # The convolution sees bands first.
        transposed = np.arange(shape[0] * shape[1]).reshape(shape).T
        seen = window_indices((1, *transposed.shape), (size, size), strides)
        places = transposed.ravel()[seen]
    else:
        shape = (channels, *sides)
        places = window_indices(shape, (size, size), strides)
    return shape, places.reshape(places.shape[0] * places.shape[1], -1)


def _rows(folder: Folder, name: str, dim: int) -> Floats:
    """Return a tensor [..., dim] as [rows, dim], and remove it from the folder's."""
    tensor = folder.floats(name)
    if tensor.shape[-1:] != (dim,) or not tensor.size:
        raise InputError(
            f"Weight {name!r} in {folder.weights_path} must have {dim} columns, not "
            f"{list(tensor.shape)}"
        )
    return tensor.reshape(-1, dim)


def _linear(folder: Folder, name: str, inputs: int) -> tuple[Floats, Floats]:
    """Return the weight and the bias of a linear layer that the host computes."""
    weight = folder.floats(f"{name}.weight", -1, inputs)
    return weight, folder.floats(f"{name}.bias", len(weight))


def _prepend(tokens: Floats, positions: Floats) -> HostStep:
    return HostStep(
        "positions",
        f"{len(tokens)} trained vectors in front, and positions added",
        lambda x: np.concatenate([tokens, x]) + positions,
        tokens.size + positions.size,
    )


def _layers(folder: Folder, family: _Family) -> tuple[int, dict[str, Floats]]:
    """Return the layers' tensors; gains of a block's additions are included in earlier weights."""
    count, dim = folder.config["num_hidden_layers"], folder.config["hidden_size"]
    tensors: dict[str, Floats] = {}
    biased = folder.kind == "clip_vision_model" or folder.config["qkv_bias"]
    for layer in range(count):
        prefix, ours = f"{family.layer}{layer}.", f"layers.{layer}."
        for theirs, part in family.parts.items():
            if part.endswith("gain"):
                gain, module = folder.floats(f"{prefix}{theirs}", dim), part.removesuffix("_gain")
                tensors[f"{ours}{module}.weight"] = (
                    tensors[f"{ours}{module}.weight"] * gain[:, None]
                )
                tensors[f"{ours}{module}.bias"] = tensors[f"{ours}{module}.bias"] * gain
                continue
            # Gains multiply only the sums that a block adds.
            shape = (dim, -1) if part in ("output", "down") else ()
            weight = folder.floats(f"{prefix}{theirs}.weight", *shape)
            tensors[f"{ours}{part}.weight"] = weight
            without = part in ("query", "key", "value") and not biased
            tensors[f"{ours}{part}.bias"] = (
                np.zeros(len(weight))
                if without
                else folder.floats(f"{prefix}{theirs}.bias", len(weight))
            )
    return count, tensors


def _head(folder: Folder, rows: int, dim: int, norms: dict[str, Floats], epsilon: float) -> Head:
    """Return the head by the architecture; a norm that it lacks is removed from ``norms``."""
    name, head = folder.architecture, Head()
    if "Classification" in name:
        weights = [classifier for classifier in _CLASSIFIERS if classifier in folder.tensors]
        head.labels = folder.labels(len(folder.tensors[weights[0]])) if weights else ()
    if name.endswith("WithTeacher"):
        pair = [
            _linear(folder, classifier, dim)
            for classifier in ("cls_classifier", "distillation_classifier")
        ]
        meaning = "the mean of both classifiers, of the first and the second row"

        def both(x: Array) -> Array:
            (a, added), (b, more) = pair
            return np.asarray((x[:1] @ a.T + added + x[1:2] @ b.T + more) / 2)

        sizes = [weight.size for weight, _ in pair]
        parameters = sum(sizes) + sum(bias.size for _, bias in pair)
        head.after = (HostStep("classifiers", meaning, both, parameters, sum(sizes)),)
    elif folder.kind == "dinov2" and name.endswith("Classification"):

        def both_kinds(x: Array) -> Array:
            return np.concatenate([x[:1], x[1:].mean(axis=0, keepdims=True)], axis=1)

        meaning = "the first row, and beside it the mean of the others"
        head.after = (
            HostStep("pooling", meaning, both_kinds),
            linear(
                "classifier",
                "linear layer",
                *_linear(folder, "classifier", 2 * dim),
            ),
        )
    elif folder.kind == "audio-spectrogram-transformer" and name.endswith("Classification"):
        gamma, beta = (
            folder.floats(f"classifier.layernorm.{part}", dim) for part in ("weight", "bias")
        )

        def mean(x: Array) -> Array:
            return np.asarray((x[:1] + x[1:2]) / 2)

        head.after = (
            HostStep("pooling", "the mean of the first two rows", mean),
            layer_norm("classifier.layernorm", gamma, beta, epsilon),
            linear(
                "classifier",
                "linear layer",
                *_linear(folder, "classifier.dense", dim),
            ),
        )
    elif name.endswith("ForImageClassification"):
        head.layer(folder, "head", "classifier")
        head.fields = {"pooling": "class", "classes": len(head.weights["head.bias"])}
    elif name == "CLIPVisionModelWithProjection":
        head.layer(folder, "head", "visual_projection", biased=False)
        outputs = len(head.weights["head.bias"])
        folder.only("projection_dim", outputs, ", by the weight 'visual_projection.weight'")
        head.fields = {"pooling": "class", "classes": outputs}
    elif folder.kind == "clip_vision_model" and name == "CLIPVisionModel":
        # Its rows leave before that norm, which only the pooled vector passes.
        for part in ("weight", "bias"):
            norms.pop(f"final_norm.{part}")
    elif name.endswith("Model") or not name:
        trained = sorted(
            tensor for tensor in folder.tensors if HEADS.match(tensor) and "pool" not in tensor
        )
        trained = [tensor for tensor in trained if "mask_token" not in tensor]
        if trained:
            raise InputError(
                f"Configuration {folder.config_path} must give 'architectures', as {trained[0]} "
                f"in {folder.weights_path} belongs to a head"
            )
    else:
        raise InputError(
            f"Architecture {name} in {folder.config_path} is not known; known are those for "
            "ImageClassification, AudioClassification, CLIPVisionModelWithProjection, and the "
            "model alone"
        )
    return head
