"""One picture of what the models did."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from arch.errors import InputError

mpl.use("Agg")


def draw(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw accuracy beside the float model's, and where the cycles went, into a PNG file.

    Raises :class:`InputError` where the file cannot be written.
    """
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [result["model"] for result in results]
    places = range(len(names))
    for shift, key, label in ((-0.2, "float_accuracy", "float"), (0.2, "accuracy", "machine")):
        bars = left.bar([p + shift for p in places], [r[key] * 100 for r in results], 0.38)
        bars.set_label(label)
        left.bar_label(bars, fmt="%.1f")
    left.set_xticks(list(places), names)
    left.set_ylim(90, 101)
    left.set_ylabel("accuracy on the test split (%)")
    left.legend(loc="lower right")

    ideal = [result["ideal_cycles"] for result in results]
    rest = [max(0.0, r["cycles_per_inference"] - r["ideal_cycles"]) for r in results]
    right.barh(names, ideal, label="every element multiplies")
    right.barh(names, rest, left=ideal, label="the rest")
    right.set_xlabel("cycles per image")
    right.set_title(", ".join(f"{r['mismatches']} mismatches" for r in results), fontsize=10)
    right.legend()
    beside = path.with_name(f".{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(beside, format="png", dpi=120)
        os.replace(beside, path)
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}") from error
