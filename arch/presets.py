"""Configurations by name or from a file."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arch.config import Config
from arch.errors import InputError
from arch.micro.config import MicroConfig

_SMALL = Config(name="small", lanes=8, scratchpad_banks=4)

_STORY = _SMALL.replace(
    name="story",
    array="tree",
    rows=13,
    cols=12,
    weight_depth=4096,
    max_k=512,
    acc_width=25,
    lanes=12,
    scratchpad_bytes=1 << 17,
    acc_depth=2048,
    mem_width=32,
    program_depth=8192,
    param_depth=512,
    table_slots=8,
    max_row=512,
    queue_depth=8,
    zero_points=False,
    operand_gating=False,
    rotary=True,
    argmax=True,
)

PRESETS: dict[str, Config] = {
    preset.name: preset
    for preset in (
        MicroConfig(name="micro"),
        _SMALL.replace(
            name="tiny",
            rows=4,
            cols=4,
            lanes=1,
            scratchpad_bytes=16384,
            scratchpad_banks=2,
            acc_depth=256,
            mem_width=32,
            program_depth=1024,
            param_depth=512,
            max_row=128,
        ),
        _SMALL.replace(program_depth=4096),
        _SMALL.replace(
            name="medium",
            rows=16,
            cols=16,
            lanes=16,
            scratchpad_bytes=1 << 19,
            scratchpad_banks=8,
            acc_depth=4096,
            mem_width=128,
            program_depth=4096,
            param_depth=512,
            max_row=1024,
            max_k=8192,
        ),
        _SMALL.replace(
            name="wide",
            rows=8,
            cols=16,
            lanes=8,
            scratchpad_bytes=1 << 17,
            mem_width=128,
        ),
        _SMALL.replace(
            name="odd",
            rows=5,
            cols=3,
            lanes=2,
            scratchpad_bytes=32768,
            scratchpad_banks=2,
            acc_depth=2048,
            mem_width=32,
            fused=False,
        ),
        _STORY,
        _STORY.replace(
            name="story_85f",
            rows=8,
            cols=8,
            weight_depth=4608,
            max_k=256,
            acc_width=24,
            lanes=4,
            scratchpad_bytes=1 << 16,
            scratchpad_banks=2,
            acc_depth=320,
            program_depth=3584,
            param_depth=1024,
            table_slots=5,
            max_row=96,
            queue_depth=4,
            fused=False,
        ),
    )
}
"""Named configurations: from the smallest to the largest array, and for one model on the chip."""


def load(source: str, overrides: list[str] | None = None) -> Config:
    """Return the configuration named by a preset's name or a TOML file's path.

    A TOML file gives any fields by name and may start from a preset with ``preset = "NAME"``.
    Raises :class:`InputError` where the source is neither, or its content cannot work.
    """
    if source in PRESETS:
        config = PRESETS[source]
    elif Path(source).suffix == ".toml":
        config = _load_toml(Path(source))
    else:
        raise InputError(
            f"Unknown configuration {source!r}; use a TOML file or one of {', '.join(PRESETS)}"
        )
    return config.override(overrides or [])


def stated(source: str | None, overrides: Sequence[str]) -> set[str]:
    """Return the names of the fields to which a TOML file or overrides give a value themselves."""
    names = {assignment.partition("=")[0] for assignment in overrides}
    if source is not None and Path(source).suffix == ".toml":
        names |= _read_toml(Path(source)).keys()
    return names


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"Configuration {path} is not TOML: {error}") from error


def _load_toml(path: Path) -> Config:
    values = _read_toml(path)
    preset = values.pop("preset", "small")
    if preset not in PRESETS:
        raise InputError(f"Unknown preset {preset!r} in {path}; known are {', '.join(PRESETS)}")
    return PRESETS[preset].replace(**{"name": path.stem, **values})
