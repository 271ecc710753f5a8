"""The picture of a design on its device."""

from pathlib import Path

import numpy as np
from matplotlib.image import imread

from celosia.fpga.floorplan import densest, draw, owners


def test_a_tile_is_its_largest_units() -> None:
    places = [(0, 0, "b"), (0, 0, "a"), (0, 0, "b"), (2, 1, ""), (3, 1, "b"), (3, 1, "a")]
    assert owners(places) == {(0, 0): "b", (2, 1): "", (3, 1): "a"}


def test_a_name_stands_where_most_of_a_unit_is() -> None:
    block = [(x, y) for x in range(19, 32) for y in range(39, 52)]
    assert densest(np.array([(0, 0), (1, 0), *block, (90, 3)])) == (25, 45)


def test_the_picture_has_every_unit_and_its_tiles_are_filled(tmp_path: Path) -> None:
    places = [(x, y, "left" if x < 30 else "right") for x in range(60) for y in range(40)]
    draw(places, "two halves", tmp_path / "plan.png")
    picture = imread(tmp_path / "plan.png")[..., :3]
    colors, counts = np.unique(picture.reshape(-1, 3), axis=0, return_counts=True)
    common = colors[np.argsort(-counts)][:3]
    assert np.sort(counts)[-3:].min() > 0.15 * counts.sum()  # two halves and the page around them
    assert [1.0, 1.0, 1.0] in common.tolist()
