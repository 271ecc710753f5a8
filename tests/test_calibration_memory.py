"""The tensors that calibration keeps of texts: all of small models, some of large ones."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import random_weights
from celosia.generators.quantize import calibrate as calibration
from celosia.generators.quantize import rows as kept_rows
from celosia.generators.quantize.calibrate import Calibration
from celosia.generators.quantize.quantize import quantize_calibrated
from celosia.generators.quantize.texts import (
    given_texts,
    sample_texts,
)
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward

MODEL = TextDescription(
    name="kept",
    vocabulary=40,
    positions=32,
    dim=16,
    layers=2,
    heads=2,
    ffn=32,
    activation="silu",
    gated=True,
    norm="rmsnorm",
    position="rotary",
    bias=False,
)
WEIGHTS = random_weights(MODEL)


def _given(count: int, length: int = 32) -> Calibration:
    rows = np.random.default_rng(3).integers(0, MODEL.vocabulary, (count, length)).tolist()
    return given_texts(MODEL, WEIGHTS, rows, length)


def _sampled(count: int, length: int = 32) -> Calibration:
    return sample_texts(MODEL, WEIGHTS, None, count=count, length=length, seed=1)


def _bytes(samples: Calibration) -> int:
    return sum(rows.nbytes for rows in samples.rows.values())


@pytest.mark.parametrize("make", [_given, _sampled])
@pytest.mark.parametrize("share", [0.4, 0.02])
def test_texts_are_kept_within_a_bound(monkeypatch, make: Callable, share: float) -> None:
    whole = make(10)
    assert whole.tokens.shape == (10, 32)
    bound = int(share * _bytes(whole))
    monkeypatch.setattr(kept_rows, "KEPT_BYTES", bound)
    part = make(10)
    assert bound / 2 < _bytes(part) <= bound
    assert part.tokens.shape == ((4, 32) if share == 0.4 else (1, 6))
    places = [0, 2, 5, 7] if share == 0.4 else [0]
    np.testing.assert_array_equal(part.tokens, whole.tokens[places, : part.tokens.shape[1]])
    assert part.ranges == whole.ranges
    for name, rows in whole.rows.items():
        assert whole.ranges[name].size == np.abs(rows).max()
        by_text = rows.reshape(10, 32, -1)[places, : part.tokens.shape[1]]
        np.testing.assert_array_equal(part.rows[name], by_text.reshape(part.tokens.size, -1))
    decoder = quantize_calibrated(MODEL, WEIGHTS, part, None)
    assert decoder.output.scale == quantize_calibrated(MODEL, WEIGHTS, whole, None).output.scale


def test_tensors_are_those_of_the_floats() -> None:
    samples = _given(3)
    exact = forward(MODEL, WEIGHTS, samples.tokens)
    for name, rows in samples.rows.items():
        np.testing.assert_allclose(rows, exact[name].reshape(96, -1), atol=1e-9)


def _peak(make: Callable[[], object]) -> int:
    make()
    tracemalloc.start()
    make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("counts", [(8, 64)])
def test_memory_does_not_grow_with_the_texts(monkeypatch, counts: tuple[int, int]) -> None:
    monkeypatch.setattr(kept_rows, "KEPT_BYTES", 1 << 17)
    monkeypatch.setattr(calibration, "BATCH_ELEMENTS", 1 << 12)
    few, many = (_peak(lambda count=count: _given(count)) for count in counts)
    assert many < 1.2 * few


def test_answers_are_kept_within_a_bound(monkeypatch) -> None:
    model = TextDescription(
        name="pair",
        vocabulary=17,
        positions=9,
        dim=16,
        layers=1,
        heads=2,
        ffn=24,
        source_layers=1,
        source_positions=7,
        norm="layernorm",
        position="learned",
        activation="gelu",
        gated=False,
        bias=True,
    )
    weights, sources = random_weights(model), [[1, 2], [3, 4, 5], [6], [7, 8]]
    whole = sample_texts(model, weights, None, sources=sources, length=5, seed=1)
    row = sum(rows.shape[1] * rows.itemsize for rows in whole.rows.values())
    monkeypatch.setattr(kept_rows, "KEPT_BYTES", 2 * 5 * row)
    part = sample_texts(model, weights, None, sources=sources, length=5, seed=1)
    assert (whole.sources, part.sources) == ((2, 3, 1, 2), (2, 1))
    assert 5 * row < _bytes(part) <= 2 * 5 * row
    np.testing.assert_array_equal(part.tokens, whole.tokens[::2])
    assert part.ranges == whole.ranges
    for name, rows in part.rows.items():
        counts = whole.sources if len(whole.rows[name]) == sum(whole.sources) else (5,) * 4
        first, _, third, _ = np.split(whole.rows[name], np.cumsum(counts)[:-1])
        np.testing.assert_array_equal(rows, np.concatenate([first, third]))


def test_a_cache_is_copied_seldom_while_a_text_grows() -> None:
    cache, rows = KvCache(), np.random.default_rng(1).normal(size=(2, 3, 200, 4))
    arrays = {}
    for place in range(200):
        cache.reserve(1)
        kept = cache.append("key", rows[:, :, place : place + 1])
        np.testing.assert_array_equal(kept, rows[:, :, : place + 1])
        arrays[id(cache.kept["key"])] = cache.kept["key"]
    assert len(arrays) == 9  # 1, 2, 4 to 256 rows
