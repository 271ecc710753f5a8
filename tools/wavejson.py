"""Waveforms as WaveJSON, which WaveDrom draws: one value of each signal a cycle."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_CELL = 4.5
"""Characters that a cycle has room for."""


def wave(
    label: str, values: Sequence[int], width: int, form: str, meant: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return a signal of WaveJSON.

    ``form`` is ``bit``, ``signed``, ``unsigned`` or ``hex`` (``width`` bits). The value is drawn as
    undefined in cycles in which ``meant``, if given, is 0.
    """
    texts = [
        _text(value, width, form) if known else "x"
        for value, known in zip(values, meant or [1] * len(values), strict=True)
    ]
    if form == "bit":
        return {"name": label, "wave": texts[0] + _repeats("".join(texts))}
    starts = [0, *(i for i in range(1, len(texts)) if texts[i] != texts[i - 1])]
    kinds = {index: "x" if texts[index] == "x" else "=" for index in starts}
    letters = "".join(kinds.get(index, ".") for index in range(len(texts)))
    data = [texts[index] for index in starts if texts[index] != "x"]
    return {"name": label, "wave": letters, "data": data}


def diagram(clocks: int, waves: Sequence[Mapping[str, Any]], first: int = 0) -> dict[str, Any]:
    """Return a diagram of some waves under a clock, its cycles numbered from ``first`` on."""
    clock = {"name": "clk", "wave": "p" + "." * (clocks - 1)}
    room = max((_crowding(signal) for signal in waves), default=1)
    return {
        "signal": [clock, *waves],
        "head": {"tick": first},
        "config": {"hscale": max(1, math.ceil(room))},
    }


def _crowding(signal: Mapping[str, Any]) -> float:
    """Return the ratio of a signal's longest text to its cell, at least 1."""
    runs = [len(run) for run in re.findall(r"=\.*", signal["wave"])]
    pairs = zip(signal.get("data", ()), runs, strict=True) if "data" in signal else ()
    return max((len(text) / (run * _CELL) for text, run in pairs), default=1)


def _repeats(letters: str) -> str:
    """Return all letters but the first; a letter equal to the previous one becomes a dot."""
    return "".join(
        "." if after == before else after for before, after in itertools.pairwise(letters)
    )


def _text(value: int, width: int, form: str) -> str:
    if form == "hex":
        return f"{value:x}"
    if form == "signed" and value >> (width - 1):
        value -= 1 << width
    return str(value)
