"""Angular speeds of rotary position embeddings, from the settings of a Hugging Face folder."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.hugging_face_folder import Folder
from celosia.generators.frontend.weights import Floats

Turning = tuple[float, Floats, float]
"""(rotary base, radians per position of each pair [head_dim / 2], factor for cosines and sines)."""
_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
_OLDER = {"su": "longrope", "yarn": "longrope"}
"""Kinds by the names that Phi-3's class uses for them."""
_STRETCHED = ("llama3", "yarn", "longrope")
"""Kinds that depend on the number of places of a model's original training."""


def rope_settings(folder: Folder, *, partial: bool) -> dict[str, Any]:
    """Return the settings of a decoder's rotary positions from config.json: a dictionary by name.

    The dictionary has ``rope_type``, ``rope_theta``, ``partial_rotary_factor`` and all entries of
    ``rope_scaling`` or ``rope_parameters``. If ``partial`` is false, the model must rotate all
    columns of a head. Raises :class:`InputError` if the type, or the share of rotated columns, is
    not supported.
    """
    config, path = folder.config, folder.config_path
    rope = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    kind = rope.get("rope_type", rope.get("type"))
    if kind is None:
        kind = None if "factor" in rope else "default"
    if folder.kind == "phi3":
        kind = _OLDER.get(str(kind), kind)
    if kind not in _KINDS:
        raise InputError(
            f"Setting 'rope_type' in {path} must be one of {', '.join(_KINDS)}, not {kind!r}"
        )
    if folder.kind == "phi3" and kind not in ("default", "longrope"):
        raise InputError(
            f"Setting 'rope_type' in {path} must be default or longrope for a model of type phi3, "
            f"not {kind!r}"
        )
    base = config.get("rotary_emb_base", config.get("rope_theta"))
    share = config.get("rotary_pct", config.get("partial_rotary_factor"))
    # Entries of the rotary dictionary have priority over the top level of config.json.
    rope = {"rope_theta": base, "partial_rotary_factor": share, **rope, "rope_type": kind}
    if not partial and kind == "default":
        # Their classes do not read it.
        rope["partial_rotary_factor"] = 1.0
    if not partial and rope["partial_rotary_factor"] != 1:
        raise InputError(
            f"Setting 'partial_rotary_factor' in {path} must be 1 for a model of type "
            f"{folder.kind}, not {rope['partial_rotary_factor']!r}"
        )
    if kind in _STRETCHED:
        beside = config.get("original_max_position_embeddings")
        places = beside or rope.get("original_max_position_embeddings")
        rope["original_max_position_embeddings"] = places or config["max_position_embeddings"]
    return rope


def rotary_speeds(folder: Folder, rope: Mapping[str, Any], head_dim: int) -> Turning:
    """Return (rotary base, angular speeds [head_dim / 2], factor for cosines and sines).

    A speed is in radians per position, and 0 for a pair of columns that is not rotated. ``rope`` is
    the result of :func:`rope_settings`. For the RoPE types ``dynamic`` and ``longrope``, the speeds
    are those of texts up to the training length. Raises :class:`InputError` if a setting is missing
    or invalid.
    """
    base, kind = float(rope["rope_theta"]), rope["rope_type"]
    rotated = int(head_dim * rope["partial_rotary_factor"])
    if rotated % 2:
        raise InputError(
            f"Setting 'partial_rotary_factor' in {folder.config_path} must rotate an even number "
            f"of a head's {head_dim} columns, not {rotated}"
        )
    speeds = base ** (-np.arange(0, rotated, 2) / max(rotated, 1))
    factor = 1.0
    if kind == "linear":
        speeds = speeds / _number(folder, rope, "factor")
    elif kind == "dynamic":
        _number(folder, rope, "factor")
    elif kind == "llama3":
        speeds = _llama3(folder, rope, speeds)
    elif kind == "yarn":
        speeds, factor = _yarn(folder, rope, speeds, rotated, base)
    elif kind == "longrope":
        speeds, factor = _longrope(folder, rope, speeds)
    # The rotated columns are the first of a head, so the pairs behind stand still.
    still = np.zeros((head_dim - rotated) // 2)
    return base, np.concatenate([speeds, still]), factor


def _number(folder: Folder, rope: Mapping[str, Any], name: str) -> float:
    value = rope.get(name)
    if value is None:
        raise InputError(
            f"Setting {name!r} in {folder.config_path} must be a number, not {value!r}"
        )
    return float(value)


def _stretch(folder: Folder, rope: Mapping[str, Any]) -> float:
    """Return the ratio of a model's longest text to that of its original training."""
    if rope.get("factor") is not None:
        return float(rope["factor"])
    places: int = folder.config["max_position_embeddings"]
    return places / float(rope["original_max_position_embeddings"])


def _llama3(folder: Folder, rope: Mapping[str, Any], speeds: Floats) -> Floats:
    """Slow pairs are slowed by a factor, fast ones are not, and those between partly."""
    factor, low, high = (
        _number(folder, rope, name) for name in ("factor", "low_freq_factor", "high_freq_factor")
    )
    if not low < high:
        raise InputError(
            f"Setting 'high_freq_factor' in {folder.config_path} must be more than "
            f"'low_freq_factor', but they are {high:g} and {low:g}"
        )
    turns = rope["original_max_position_embeddings"] * speeds / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray((1 - share) * speeds / factor + share * speeds)


def _longrope(folder: Folder, rope: Mapping[str, Any], speeds: Floats) -> tuple[Floats, float]:
    """Return the speeds and the factor of LongRoPE for the places of the original training."""
    for name in ("short_factor", "long_factor"):
        if len(rope.get(name, ())) != len(speeds):
            raise InputError(
                f"Setting {name!r} in {folder.config_path} must have {len(speeds)} numbers, "
                f"not {len(rope.get(name, ()))}"
            )
    factor, stretch = rope.get("attention_factor"), _stretch(folder, rope)
    if factor is None:
        first = math.log(rope["original_max_position_embeddings"])
        factor = math.sqrt(1 + math.log(stretch) / first) if stretch > 1 else 1.0
    return speeds / np.asarray(rope["short_factor"], np.float64), float(factor)


def _yarn(
    folder: Folder, rope: Mapping[str, Any], speeds: Floats, rotated: int, base: float
) -> tuple[Floats, float]:
    """Return the speeds and the factor of YaRN (Peng et al. 2024)."""
    if "factor" not in rope:
        raise InputError(f"Setting 'factor' in {folder.config_path} must be a number, not None")
    factor, first = _stretch(folder, rope), rope["original_max_position_embeddings"]

    def scale(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    attention_factor, own_scale, every = (
        rope.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim")
    )
    if attention_factor is None:
        attention_factor = (
            scale(float(own_scale)) / scale(float(every)) if own_scale and every else scale(1.0)
        )

    def place(turns: float) -> float:
        return rotated * math.log(first / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = place(float(rope.get("beta_fast") or 32.0))
    high = place(float(rope.get("beta_slow") or 1.0))
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    high = high + 0.001 if high == low else high
    share = 1 - np.clip((np.arange(len(speeds)) - low) / (high - low), 0.0, 1.0)
    return np.asarray(speeds / factor * (1 - share) + speeds * share), float(attention_factor)
