"""Waveforms of a VCD file as WaveJSON, which WaveDrom draws: one value of each signal a cycle."""

import itertools
import math
import re
import signal
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vcdvcd import VCDVCD

from arch.errors import InputError

# Imported, vcdvcd lets a write to a closed pipe end the process; in Python that is an exception.
signal.signal(signal.SIGPIPE, signal.SIG_IGN)

_CELL = 4.5
"""Characters that a cycle has room for."""


def cycles(path: Path, clock: str, signals: Sequence[str]) -> dict[str, list[int]]:
    """Return each signal's bits, as an unsigned integer, just before every rising edge of a clock.

    Names are those of the file with their scopes, as ``bench.top.clk``. Raises
    :class:`InputError` where the file lacks one of them.
    """
    dump = VCDVCD(str(path))
    names = {_plain(name): name for name in dump.signals}
    for name in (clock, *signals):
        if name not in names:
            raise InputError(f"File {path} has no signal {name}")
    edges = [time for time, value in dump[names[clock]].tv if value == "1"]
    found = {}
    for name in signals:
        changes = dump[names[name]].tv
        times = [time for time, _ in changes]
        before = (changes[max(0, bisect_left(times, edge) - 1)][1] for edge in edges)
        found[name] = [int(value, 2) for value in before]
    return found


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
    room = max((_crowding(one) for one in waves), default=1)
    return {
        "signal": [clock, *waves],
        "head": {"tick": first},
        "config": {"hscale": max(1, math.ceil(room))},
    }


def _crowding(one: Mapping[str, Any]) -> float:
    """Return how much longer than its cell a signal's longest text is."""
    runs = [len(run) for run in re.findall(r"=\.*", one["wave"])]
    pairs = zip(one.get("data", ()), runs, strict=True) if "data" in one else ()
    return max((len(text) / (run * _CELL) for text, run in pairs), default=1)


def _repeats(letters: str) -> str:
    """Return all letters but the first, a dot in the place of each that is the one before it."""
    return "".join(
        "." if after == before else after for before, after in itertools.pairwise(letters)
    )


def _text(value: int, width: int, form: str) -> str:
    if form == "hex":
        return f"{value:x}"
    if form == "signed" and value >> (width - 1):
        value -= 1 << width
    return str(value)


def _plain(name: str) -> str:
    """Return a name as VCD's readers know it, without escapes and without its range."""
    name = name.replace("\\", "")
    return name.rpartition("[")[0] if name.endswith("]") and ":" in name else name
