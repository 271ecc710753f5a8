"""A decoder calibrated on given rows keeps its task: the sorter of examples/train_sorter.py."""

from pathlib import Path

import numpy as np

from celosia.generators.frontend.text_sources import load_text
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate

FOLDER = Path(__file__).parent / "data" / "sorter"
EVERY, LENGTH = 9, 6


def right(inputs, step) -> int:
    """Return how many inputs are sorted where each next digit is the likeliest."""
    texts = inputs
    for _ in range(LENGTH):
        texts = np.concatenate([texts, step(texts)[:, None]], axis=1)
    return int((texts[:, LENGTH:] == np.sort(inputs, axis=1)).all(axis=1).sum())


def test_integers_sort_as_floats_do() -> None:
    source = load_text(str(FOLDER))
    assert source.tokenizer.begin is None
    decoder, apart = source.calibrate(source.read_calibration(FOLDER / "rows.npy"))
    assert apart.warning == ""
    inputs = np.load(FOLDER / "inputs.npy")[::EVERY]

    def exact(texts):
        return forward(source.description, source.weights, texts)["logits"][:, -1].argmax(axis=1)

    def integers(texts):
        return np.array([evaluate(decoder, text)["logits"][-1].argmax() for text in texts])

    floats = right(inputs, exact)
    assert floats >= 0.99 * len(inputs)
    assert right(inputs, integers) >= floats - 0.01 * len(inputs)
