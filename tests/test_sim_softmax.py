"""The golden softmax against float64, adversarial rows, and TensorFlow Lite's vectors."""

from pathlib import Path

import numpy as np
import pytest

from celosia.sim.exponential import octave_exponential
from celosia.sim.softmax import softmax

VECTORS = Path(__file__).parent / "data" / "tflite"
ONE = 1 << 24


def exact_softmax(q):
    weights = 2.0 ** ((q - q.max(axis=-1, keepdims=True)) / 256)
    return weights / weights.sum(axis=-1, keepdims=True)


def to_int8(p):
    """Return probabilities at the scale 1/256 and the zero point -128, ties up."""
    return np.clip((p + (1 << 15)) // (1 << 16) - 128, -128, 127)


def int8_error(p, exact):
    return np.abs(to_int8(p) - np.minimum(256 * exact - 128, 127)).max()


def test_one_dominant_and_many_equal_small_scores():
    for length in (2, 3, 100, 511, 512):
        q = np.zeros((14 * 256, length), dtype=np.int64)
        q[:, 1:] = -np.arange(14 * 256)[:, None]
        assert int8_error(softmax(q), exact_softmax(q)) <= 0.51


def test_random_rows():
    rng = np.random.default_rng(1)
    for length in (1, 2, 7, 64, 512):
        q = np.rint(rng.normal(0, 2 ** rng.uniform(2, 12, (500, 1)), (500, length)))
        q = np.clip(q, -32768, 32767).astype(np.int64)
        p = softmax(q)
        assert int8_error(p, exact_softmax(q)) <= 0.51
        assert np.abs(p / ONE - exact_softmax(q)).max() <= 2.0**-15


def test_longest_row():
    q = np.full((1, 4096), -11 * 256 - 255)
    q[0, 5] = 0
    assert np.abs(softmax(q) / ONE - exact_softmax(q)).max() <= 2.0**-15


def test_ends_of_the_range():
    assert softmax(np.array([-32768])).tolist() == [ONE]
    assert softmax(np.array([32767, -32768, 32767])).tolist() == [ONE // 2, 0, ONE // 2]
    assert softmax(np.full(256, 77)).tolist() == [ONE // 256] * 256


def test_rounds_to_nearest():
    tails = [softmax(np.array([0, -distance]))[1] for distance in (6016, 6145, 6300, 6401, 6500)]
    assert tails == [1, 1, 1, 0, 0]


def test_masked_columns_give_zero_and_change_nothing():
    rng = np.random.default_rng(2)
    q = rng.integers(-3000, 3000, 50)
    mask = rng.random(50) < 0.5
    p = softmax(q, mask)
    assert (p[~mask] == 0).all()
    np.testing.assert_array_equal(p[mask], softmax(q[mask]))
    assert (softmax(q, np.zeros(50, dtype=bool)) == 0).all()


def test_exponential_is_close_to_float64():
    distance = np.arange(1 << 16)
    mantissa, shift = octave_exponential(distance)
    exact = 2.0 ** (-distance / 256)
    near = distance < 32 * 256
    relative = (mantissa * 2.0 ** (-16 - shift) / exact)[near] - 1
    assert np.abs(relative).max() <= 2.0**-16
    assert (mantissa[~near] == 0).all()


@pytest.mark.parametrize(("width", "difference", "error"), [(8, 0, 0.5), (16, 6, 6.0)])
def test_tflite(width, difference, error):
    """TensorFlow Lite's INT8 results are ours; its INT16 ones differ by at most 6.

    A score is a whole 1/256 of an octave here, which moves a probability by up to 0.14 %.
    """
    path = VECTORS / f"softmax_int8_to_int{width}.npz"
    vectors = np.load(path)
    step = float(vectors["multiplier"]) * 2.0 ** (int(vectors["left_shift"]) - 31 - 26)
    x = vectors["x"].astype(np.float64)
    p = softmax(np.rint(x * step * np.log2(np.e) * 256).astype(np.int64))
    y = ((p >> (23 - width)) + 1 >> 1) - (1 << (width - 1))
    assert np.abs(y - vectors["y"]).max() == difference
    exact = np.exp((x - x.max(axis=1, keepdims=True)) * step)
    exact = exact / exact.sum(axis=1, keepdims=True) * 2.0**width - 2.0 ** (width - 1)
    assert np.abs(y - exact).max() <= error
