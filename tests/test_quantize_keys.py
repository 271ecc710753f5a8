"""Steps of queries and keys, whose product is the same for all columns of a head."""

from types import SimpleNamespace

import numpy as np
import pytest

from celosia.generators.quantize.keys import quantize_keys
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.steps import best_step, kept_range, upper_step, wide_step

RNG = np.random.default_rng(3)
KV_HEADS, GROUP, DIM = 2, 3, 8
HEADS = KV_HEADS * GROUP
COLUMNS = np.array([0, 4, 1, 5, 2, 6, 3, 7])
SPREAD = np.repeat(2.0 ** np.arange(4), 2)[np.argsort(COLUMNS)]


def texts(heads: int, scale=1.0) -> list[np.ndarray]:
    return [RNG.standard_t(4, (n, heads, DIM)) * SPREAD * scale for n in (13, 21)]


def quantized(position="rotary", whole=0, keys=None, queries=None, causal=True, **options):
    model = SimpleNamespace(
        position=position, heads=HEADS, kv_heads=KV_HEADS, group=GROUP, head_dim=DIM
    )
    keys, queries = keys or texts(KV_HEADS), queries or texts(HEADS)
    chosen = Quantization(**{"alike": False, **options})
    rotary = model.position == "rotary"
    made = quantize_keys(model, keys, queries, COLUMNS, whole, chosen, causal=causal, rotary=rotary)
    flat, asked = (np.concatenate(rows)[:, :, COLUMNS] for rows in (keys, queries))
    np.testing.assert_allclose(
        made.query * np.repeat(made.key, GROUP, axis=0), np.tile(made.product[:, None], DIM)
    )
    return made, flat, asked


def test_products_have_the_step_that_loses_least() -> None:
    made, _, asked = quantized()
    for head in range(HEADS):
        weighed = asked[:, head] * made.key[head // GROUP]
        assert made.product[head] == pytest.approx(best_step(weighed, 127), rel=1e-12)
    assert not made.middle.any()


@pytest.mark.parametrize("whole", [0, 2, 4])
def test_whole_columns_keep_their_bits(whole: int) -> None:
    made, flat, _ = quantized(kv_bits=4, whole=whole)
    for head in range(KV_HEADS):
        for pair in range(DIM // 2):
            values = flat[:, head, 2 * pair : 2 * pair + 2]
            step = best_step(values, 127) if 2 * pair < whole else upper_step(values, 4)
            np.testing.assert_allclose(made.key[head, 2 * pair : 2 * pair + 2], step, rtol=1e-12)


def test_rotated_keys_share_what_columns_differ_in_with_queries() -> None:
    made, flat, asked = quantized()
    ratio = np.abs(flat).reshape(-1, KV_HEADS, 4, 2).max(axis=(0, 3)) / np.abs(asked).reshape(
        -1, KV_HEADS, GROUP, 4, 2
    ).max(axis=(0, 2, 4))
    gains = np.repeat(np.sqrt(ratio), 2, axis=1)
    for head in range(KV_HEADS):
        step = best_step(flat[:, head] / gains[head], 127)
        np.testing.assert_allclose(made.key[head], gains[head] * step, rtol=1e-4)


def test_columns_that_queries_or_keys_lack_have_a_step() -> None:
    keys, queries = texts(KV_HEADS), texts(HEADS)
    for rows in keys:
        rows[:, :, [1, 5]] = 0
    for rows in queries:
        rows[:, :, [2, 6]] = 0
    made, _, _ = quantized(keys=keys, queries=queries)
    assert np.isfinite(made.query).all()
    assert (made.key > 0).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_other_keys_have_a_middle(bits: int) -> None:
    keys = [rows + 5 * np.arange(DIM) for rows in texts(KV_HEADS)]
    made, flat, _ = quantized(position="learned", keys=keys, kv_bits=bits)
    middle, steps = kept_range(flat.reshape(len(flat), -1), bits)
    np.testing.assert_array_equal(made.middle.ravel(), middle)
    np.testing.assert_array_equal(made.key.ravel(), steps)


def test_mixed_activations_have_wide_queries() -> None:
    made, flat, asked = quantized(activations="mixed")
    for head in range(KV_HEADS):
        for pair in range(DIM // 2):
            values = flat[:, head, 2 * pair : 2 * pair + 2]
            assert made.key[head, 2 * pair] == pytest.approx(best_step(values, 127), rel=1e-12)
    for head in range(HEADS):
        weighed = asked[:, head] * made.key[head // GROUP]
        assert made.product[head] == pytest.approx(wide_step(weighed), rel=1e-12)


@pytest.mark.parametrize(("causal", "bits"), [(True, 8), (False, 8), (True, 4)])
def test_scores_that_int16_cannot_hold_are_raised(causal: bool, bits: int) -> None:
    keys, queries = texts(KV_HEADS, 2.5), texts(HEADS)
    queries = [np.abs(rows) for rows in queries]
    keys = [np.abs(rows) for rows in keys]
    made, _, _ = quantized(keys=keys, queries=queries, causal=causal, kv_bits=bits)
    # Bits that are left out are half a step of those that are kept.
    lost = np.empty_like(made.key)
    lost[:, COLUMNS] = 8 * made.key * (bits == 4)
    keys = [rows - lost for rows in keys]
    room = 32767 / 256 * np.log(2)  # natural units
    raised = 0
    for head in range(HEADS):
        largest = []
        for kept, asked in zip(keys, queries, strict=True):
            for place in range(len(asked)):
                seen = kept[: place + 1] if causal else kept
                scores = asked[place, head] @ seen[:, head // GROUP].T
                largest.append(scores.max() / np.sqrt(DIM))
        low, high = min(largest), max(largest)
        outside = high > room / 2 or low < 20 - room / 2
        raised += outside
        wanted = (20 - low - high) / 2 * np.sqrt(DIM) if outside else 0.0
        assert made.raised[head] == pytest.approx(wanted, rel=1e-9)
    assert raised
    assert not quantized(keys=texts(KV_HEADS, 0.01))[0].raised.any()


def test_alike_heads_have_the_steps_of_the_largest() -> None:
    keys, queries = texts(KV_HEADS, 2.5), texts(HEADS)
    shared = {"position": "learned", "keys": keys, "queries": queries}
    plain, alike = (quantized(**shared, alike=alike)[0] for alike in (False, True))
    assert len(np.unique(plain.product)) == HEADS
    np.testing.assert_array_equal(alike.product, plain.product.max())
    assert len(np.unique(alike.raised)) == 1


@pytest.mark.parametrize("options", [{}, {"kv_bits": 4}, {"position": "learned"}])
@pytest.mark.parametrize("zeros", [{"queries"}, {"keys"}, {"queries", "keys"}])
def test_heads_without_any_score_have_steps_too(options, zeros) -> None:
    heads = {"queries": HEADS, "keys": KV_HEADS}
    rows = {name: texts(heads[name], 0.0 if name in zeros else 1.0) for name in heads}
    made, _, _ = quantized(**rows, **options)
    for steps in (made.query, made.key, made.product):
        assert np.isfinite(steps).all()
        assert (steps > 0).all()
