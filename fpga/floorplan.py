"""Draws a floorplan: a picture of the device that shows the cells of each unit by color."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps, patheffects
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

_NAMED = 0.02
"""Share of the tiles from which on a unit's name is written into the picture itself."""

Tile = tuple[int, int]
"""Position of a tile: (column, row) of the device."""


def draw(places: Sequence[tuple[int, int, str]], title: str, path: Path) -> None:
    """Draw a device's tiles to a file; each tile has the color of the unit with most of its cells.

    ``places`` has (column, row, unit) of each cell, with unit "" for the top module. The legend
    names all units. The names of large units are also in the drawing.
    """
    cells = Counter(name for _, _, name in places)
    names = [name for name, _ in cells.most_common()]
    paints = {name: colormaps["tab20"](index % 20) for index, name in enumerate(names)}
    tiles = owners(places)
    rows, columns = _size(tiles)
    height = max(1.2 + 8.5 * rows / columns, 0.8 + 0.2 * len(names))
    figure = Figure(figsize=(12, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    picture = np.ones((rows, columns, 4))
    for (x, y), name in tiles.items():
        picture[y, x] = paints[name]
    axes.imshow(picture, interpolation="nearest", aspect="equal")
    named: list[Tile] = []
    for name in names:
        own = [tile for tile, owner in tiles.items() if owner == name]
        if name and len(own) >= _NAMED * len(tiles):
            x, y = densest(np.array(own))
            if all(abs(x - a) > columns / 8 or abs(y - b) > rows / 16 for a, b in named):
                named.append((x, y))
                _name(axes, _short(name, names), x, y)
    axes.set_title(title)
    axes.set_xlabel("column of the device")
    axes.set_ylabel("row of the device")
    handles = [
        Patch(color=paints[name], label=f"{name or 'the top'} ({cells[name]:,} cells)")
        for name in names
    ]
    figure.legend(handles=handles, loc="outside right upper", fontsize=9, frameon=False)
    figure.savefig(path, dpi=110)


def owners(places: Sequence[tuple[int, int, str]]) -> dict[Tile, str]:
    """Return a dictionary from each tile to the unit with the most cells in the tile.

    A tile is (column, row). Tiles without cells are not in the dictionary. ``places`` has a tuple
    for each cell: the column and row of its tile, and the name of its unit.
    """
    counts: defaultdict[Tile, Counter[str]] = defaultdict(Counter)
    for x, y, name in places:
        counts[x, y][name] += 1
    return {tile: max(sorted(names), key=lambda n: names[n]) for tile, names in counts.items()}


def _size(tiles: dict[Tile, str]) -> tuple[int, int]:
    return max(y for _, y in tiles) + 1, max(x for x, _ in tiles) + 1


def _short(name: str, names: Sequence[str]) -> str:
    """Return the last part of a name, with the part before it if other names end alike."""
    parts = name.split(".")
    alike = sum(other.split(".")[-1] == parts[-1] for other in names)
    return ".".join(parts[-2 if alike > 1 else -1 :])


def _name(axes: Axes, name: str, x: int, y: int) -> None:
    text = axes.text(x, y, name, fontsize=10, ha="center", va="center", clip_on=True)
    text.set_path_effects([patheffects.withStroke(linewidth=3, foreground="white")])


def densest(tiles: NDArray[np.int64]) -> Tile:
    """Return the element of ``tiles`` that has the most other elements near it.

    ``tiles`` [count, 2] has the device's column and row of each tile. Two tiles are near each other
    if they are at most six columns and at most six rows apart.
    """
    grid = np.zeros(tiles.max(axis=0) + 14, np.int64)
    grid[tiles[:, 0] + 7, tiles[:, 1] + 7] = 1
    sums = grid.cumsum(axis=0).cumsum(axis=1)
    x, y = tiles[:, 0] + 7, tiles[:, 1] + 7
    near = sums[x + 6, y + 6] - sums[x - 7, y + 6] - sums[x + 6, y - 7] + sums[x - 7, y - 7]
    column, row = tiles[int(near.argmax())]
    return int(column), int(row)
