"""Draw the pictures of measured figures into docs/figures: ``python -m tools.pictures``.

pictures.toml names each picture's bars, and the record or report of docs that has a bar's value.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.use("Agg")

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "figures"
SOURCES: dict[str, Any] = tomllib.loads(
    (ROOT / "tools" / "pictures.toml").read_text(encoding="utf-8")
)
OTHERS: dict[str, Any] = SOURCES.pop("others")
"""Figures that others published: source, lowest and highest value, by the design's name."""

OURS = "#2a9d5c"
"""The colour of Celosia's bars; published figures are grey."""

_GREYS = dict(zip(OTHERS, ("#8a8a8a", "#4d4d4d"), strict=True))


def _records() -> list[dict[str, Any]]:
    """Return the lines of ``celosia bench all --json`` that are kept."""
    path = FOLDER / "benchmarks.json"
    return json.loads(path.read_text(encoding="utf-8"))["benchmarks"]


def bars(picture: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return a picture's bars as pairs (label, value in the picture's unit)."""
    records = {record["command"]: record for record in _records()}
    rows = [row for record in records.values() for row in record.get("rows", ())]
    pairs = []
    for bar in picture["bars"]:
        if "command" in bar:
            value = records[bar["command"]]["value"]
        elif "row" in bar:
            name, key = picture["rows"]["name"], picture["rows"]["key"]
            (value,) = (row[key] for row in rows if row[name] == bar["row"])
        elif "report" in bar:
            report = ROOT / "docs" / "reports" / f"{bar['report']}.json"
            key = bar.get("key") or picture["key"]
            value = json.loads(report.read_text(encoding="utf-8"))[key]
        else:
            value = bar["killed"] / bar["of"] if "of" in bar else bar["value"]
        pairs.append((bar.get("label") or bar["row"], value * picture.get("scale", 1)))
    return pairs


def shown(value: float) -> str:
    """Return a bar's value as its picture writes it: four digits, or all of an integer."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def draw(picture: Mapping[str, Any]) -> Figure:
    """Return a picture: horizontal bars with their values, and published ranges beside them."""
    labels, values = zip(*bars(picture), strict=True)
    figure = Figure(figsize=(7.6, 1.0 + 0.32 * len(labels)), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh(range(len(labels)), values, 0.62, color=OURS, log=picture.get("log", False))
    axes.bar_label(drawn, [shown(value) for value in values], padding=4, fontsize=9)
    for place, bar in enumerate(picture["bars"]):
        if "beside" in bar:
            other = OTHERS[bar["beside"]]
            ends = (other["low"], other["high"])
            below = (place + 0.42, place + 0.42)
            axes.plot(ends, below, color=_GREYS[bar["beside"]], marker="|", linewidth=2.5)
    for name in dict.fromkeys(bar["beside"] for bar in picture["bars"] if "beside" in bar):
        axes.plot(
            [], [], color=_GREYS[name], linewidth=2.5, label=f"{name} ({OTHERS[name]['source']})"
        )
    if any("beside" in bar for bar in picture["bars"]):
        axes.plot([], [], color=OURS, linewidth=6, label="Celosia, simulated")
        figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    if picture.get("log"):
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.02)
    if "most" in picture:
        least, most = picture.get("least", 0), picture["most"]
        axes.set_xlim(least, most + 0.08 * (most - least))
    axes.set_xlabel(picture["unit"])
    axes.set_title(picture["title"], fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Write every picture as an SVG file."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "celosia", "font.size": 9}):
        for name, picture in SOURCES.items():
            path = FOLDER / f"{name}.svg"
            draw(picture).savefig(path, metadata={"Date": None, "Creator": None})
            lines = path.read_text(encoding="utf-8").splitlines()
            path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
