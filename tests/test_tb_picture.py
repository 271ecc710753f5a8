"""The demonstration's picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from celosia.arch.isa import Engine, Opcode
from celosia.sim.report import CAUSES
from celosia.tb.machine.recording import Command, Recording
from celosia.tb.models.picture import IMAGES, chosen, draw

LABELS = [index % 10 for index in range(40)]


def result(where: dict[str, int]) -> dict[str, Any]:
    predictions = LABELS.copy()
    predictions[30] = 5
    return {
        "model": "toy",
        "config": "small",
        "count": 40,
        "accuracy": 39 / 40,
        "float_accuracy": 1.0,
        "mismatches": 0,
        "predictions": predictions,
        "labels": LABELS,
        "where": where,
        "cycles_per_inference": 100.0,
    }


def test_the_first_images_and_the_errors_are_shown() -> None:
    predictions = result({})["predictions"]
    assert chosen(predictions, LABELS) == [*range(IMAGES - 1), 30]
    assert chosen(LABELS[:3], LABELS[:3]) == [0, 1, 2]
    wrong = [(label + 1) % 10 for label in LABELS]
    assert len(chosen(wrong, LABELS)) == IMAGES


@pytest.mark.parametrize("clocked", [True, False])
def test_a_picture_is_drawn(clocked: bool, tmp_path: Path) -> None:
    where = dict.fromkeys(CAUSES, 800) if clocked else {}
    command = Command(
        engine=Engine.MATRIX,
        opcode=Opcode.MATMUL,
        flags=frozenset(),
        operands={},
        sent=0,
        offered=1,
        begin=1,
        end=90,
    )
    recording = Recording(100, 100, [command], [], {}) if clocked else None
    path = tmp_path / "new" / "demo.png"
    draw([result(where)], np.zeros((40, 8, 8)), recording, path)
    height, width, _ = imread(path).shape
    assert (width, height) == (1210, 638 if clocked else 148)
    assert [file.name for file in path.parent.iterdir()] == ["demo.png"]
