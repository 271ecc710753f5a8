"""A picture of where the units of a design came to lie on the device."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw(places: Sequence[tuple[int, int, str]], title: str, path: Path) -> None:
    """Write a picture of the cells of a device, each at its place in the color of its unit."""
    figure = Figure(figsize=(11, 8))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = sorted({name for _, _, name in places}, key=lambda name: (name == "", name))
    for index, name in enumerate(names):
        points = [(x, y) for x, y, group in places if group == name]
        xs, ys = zip(*points, strict=True)
        color = colormaps["tab20"](index % 20)
        label = f"{name or 'the top'} ({len(points):,})"
        axes.scatter(xs, ys, s=4, marker="s", color=color, label=label, alpha=0.6, linewidths=0)
    axes.set_title(title)
    axes.set_xlabel("column of the device")
    axes.set_ylabel("row of the device")
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), markerscale=4, fontsize="small")
    figure.savefig(path, dpi=110, bbox_inches="tight")
