"""Angular speeds of rotary pairs, by the settings of a Hugging Face folder."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from arch.errors import InputError
from generators.frontend.hugging_face_folder import Folder
from generators.frontend.weights import Floats

DEFAULT_BASE = 10000.0


def rotary_speeds(folder: Folder, head_dim: int, positions: int) -> tuple[float, Floats, float]:
    """Return the base, the radians per place of each pair, [head_dim / 2], and a factor.

    Cosines and sines are multiplied by the factor. Pairs that are not rotated have the speed 0.
    The kinds are those of ``rope_type``: default, linear, dynamic (which is the default up to the
    positions that the model was made for), llama3, yarn, and longrope with its short factors.

    Raises :class:`InputError` where a setting is not known or not there.
    """
    config = folder.config
    rope = {**config, **folder.section("rope_scaling"), **folder.section("rope_parameters")}
    base = folder.number(rope, "rope_theta", DEFAULT_BASE)
    if base <= 1:
        raise InputError(f"Setting 'rope_theta' in {folder.config_path} must be more than 1")
    share = folder.number(rope, "partial_rotary_factor", folder.number(config, "rotary_pct", 1.0))
    kind = rope.get("rope_type", rope.get("type"))
    if kind is None:
        kind = None if "factor" in rope else "default"
    rotated = int(head_dim * share) // 2 * 2
    speeds = base ** (-np.arange(0, rotated, 2) / max(rotated, 1))
    made_for = rope.get("original_max_position_embeddings") or config.get(
        "original_max_position_embeddings"
    )
    made_for = int(made_for or positions)
    factor = 1.0
    if kind == "linear":
        speeds = speeds / _number(folder, rope, "factor")
    elif kind == "llama3":
        speeds = _llama3(folder, rope, speeds, made_for)
    elif kind == "yarn":
        speeds, factor = _yarn(folder, rope, speeds, rotated, base, made_for)
    elif kind == "longrope":
        short = np.asarray(rope.get("short_factor", ()), np.float64)
        if short.shape != speeds.shape:
            raise InputError(
                f"Setting 'short_factor' in {folder.config_path} must have {len(speeds)} numbers, "
                f"not {len(short)}"
            )
        stretch = positions / made_for
        root = math.sqrt(1 + math.log(stretch) / math.log(made_for)) if stretch > 1 else 1.0
        given = rope.get("attention_factor")
        speeds, factor = speeds / short, root if given is None else float(given)
    elif kind not in ("default", "dynamic"):
        raise InputError(
            f"Setting 'rope_type' in {folder.config_path} must be one of default, linear, dynamic, "
            f"llama3, yarn, longrope, not {kind!r}"
        )
    # The rotated columns are the first of a head, so the pairs behind stand still.
    still = np.zeros((head_dim - rotated) // 2)
    return base, np.concatenate([speeds, still]), factor


def _number(folder: Folder, rope: Mapping[str, Any], name: str) -> float:
    value = rope.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(
            f"Setting {name!r} in {folder.config_path} must be a number, not {value!r}"
        )
    return float(value)


def _llama3(folder: Folder, rope: Mapping[str, Any], speeds: Floats, made_for: int) -> Floats:
    """Slow pairs turn slower by a factor, fast ones as they did, and those between in between."""
    factor, low, high = (
        _number(folder, rope, name) for name in ("factor", "low_freq_factor", "high_freq_factor")
    )
    turns = made_for * speeds / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray((1 - share) * speeds / factor + share * speeds)


def _yarn(
    folder: Folder,
    rope: Mapping[str, Any],
    speeds: Floats,
    rotated: int,
    base: float,
    made_for: int,
) -> tuple[Floats, float]:
    """Return the speeds and the factor of YaRN (Peng et al. 2024)."""
    factor = _number(folder, rope, "factor")

    def scale(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    given, one, every = (
        rope.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim")
    )
    if given is None:
        given = scale(float(one)) / scale(float(every)) if one and every else scale(1.0)

    def place(turns: float) -> float:
        return rotated * math.log(made_for / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = place(float(rope.get("beta_fast") or 32.0))
    high = place(float(rope.get("beta_slow") or 1.0))
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    high = high + 0.001 if high == low else high
    share = 1 - np.clip((np.arange(len(speeds)) - low) / (high - low), 0.0, 1.0)
    return np.asarray(speeds / factor * (1 - share) + speeds * share), float(given)
