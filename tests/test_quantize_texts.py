"""Calibration texts of decoders: drawn, given and answered ones, and the rows that are kept."""

import re
from typing import Any

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.quantize import rows as module
from celosia.generators.quantize.calibrate import Calibration, Range, calibrate
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.texts import (
    calibration_texts,
    given_texts,
    random_sources,
    sample_texts,
)
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward
from tests.test_quantize_whole import BOTH, ENCODER, GPT, inputs_of, weights_of


def rows_of(model: Any, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Return the float model's rows for texts, one text after another."""
    texts = [forward(model, weights_of(model), text[None]) for text in tokens]
    return {name: np.concatenate([text[name][0] for text in texts]) for name in texts[0]}


def same_rows(observed: Calibration, model: Any) -> None:
    """Compare kept rows and ranges with those of the float model for the kept texts."""
    exact = rows_of(model, observed.tokens)
    assert set(observed.rows) == {
        name
        for name in exact
        if not name.endswith(("scores", "probabilities", "output")) or "attention_output" in name
    }
    for name, rows in observed.rows.items():
        np.testing.assert_allclose(rows, exact[name], atol=1e-9, err_msg=name)


@pytest.mark.parametrize("begin", [4, None])
def test_drawn_texts_begin_with_a_token_and_have_their_rows(begin: int | None) -> None:
    told: list[tuple[int, int]] = []
    observed = sample_texts(
        GPT,
        weights_of(GPT),
        begin,
        count=40,
        length=6,
        seed=3,
        progress=lambda *done: told.append(done),
    )
    assert observed.tokens.shape == (40, 6)
    assert told == [(place, 6) for place in range(1, 7)]
    first = observed.tokens[:, 0]
    assert set(first) == {begin} if begin is not None else len(set(first)) > 10
    assert 0 <= observed.tokens.min() <= observed.tokens.max() < GPT.vocabulary
    same_rows(observed, GPT)
    low, high = observed.rows["logits"].min(), observed.rows["logits"].max()
    assert observed.ranges["logits"] == Range(min(low, 0.0), max(high, 0.0))


def test_tokens_are_drawn_with_the_probabilities_of_the_model() -> None:
    count = 4000
    weights = weights_of(GPT) | {"head.bias": np.linspace(-3, 3, GPT.vocabulary)}
    observed = sample_texts(GPT, weights, 2, count=count, length=2, seed=1)
    logits = forward(GPT, weights, np.array([[2]]))["logits"][0, 0]
    share = np.exp(logits - logits.max())
    share /= share.sum()
    seen = np.bincount(observed.tokens[:, 1], minlength=GPT.vocabulary) / count
    assert np.abs(seen - share).max() < 4 * np.sqrt(share.max() / count)


@pytest.mark.parametrize(("name", "changes"), [("count", {"count": 0}), ("length", {"length": 0})])
def test_drawn_texts_are_not_empty(name: str, changes: dict[str, int]) -> None:
    sizes = {"count": 2, "length": 3} | changes
    message = f"Sampled texts' {name} must be positive, not 0"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        sample_texts(GPT, weights_of(GPT), 0, seed=1, **sizes)


def test_given_texts_are_as_long_as_the_longest() -> None:
    told: list[tuple[int, int]] = []
    texts = [[1, 2, 3, 4, 5], [6], [7, 8]]
    observed = given_texts(GPT, weights_of(GPT), texts, 4, lambda *done: told.append(done))
    assert observed.tokens.tolist() == [[1, 2, 3, 4], [6, 7, 8, 1], [7, 8, 1, 2]]
    assert told == [(3, 3)]
    same_rows(observed, GPT)
    assert given_texts(GPT, weights_of(GPT), texts, 9).tokens.shape == (3, 5)
    for wrong in ([], [[1], []]):
        with pytest.raises(
            InputError, match=r"^Calibration needs at least one text, and none of them empty$"
        ):
            given_texts(GPT, weights_of(GPT), wrong, 4)
    with pytest.raises(InputError, match=rf"^Tokens of model {GPT.name} must be from 0 to"):
        given_texts(GPT, weights_of(GPT), [[1 << 63]], 4)


@pytest.mark.parametrize(("room", "texts", "places"), [(9, 3, 4), (4.5, 1, 4), (2, 1, 2)])
def test_rows_of_few_texts_or_places_are_kept(
    monkeypatch: pytest.MonkeyPatch, room: float, texts: int, places: int
) -> None:
    """Room is in thirds of a text of four tokens: some texts, evenly spread, or first places."""
    weights, tokens = weights_of(GPT), [[n, n + 1, n + 2, n + 3] for n in range(9)]
    row = sum(rows.shape[1] * 8 for rows in given_texts(GPT, weights, tokens, 4).rows.values())
    monkeypatch.setattr(module, "KEPT_BYTES", int(room * row * 4 / 3 if room > 4 else room * row))
    observed = given_texts(GPT, weights, tokens, 4)
    assert observed.tokens.shape == (texts, places)
    kept = [place * 9 // texts for place in range(texts)]
    assert observed.tokens.tolist() == [tokens[place][:places] for place in kept]
    same_rows(observed, GPT)


def test_random_sources_have_all_lengths() -> None:
    sources = random_sources(BOTH, 200, 5)
    assert {len(source) for source in sources} == set(range(1, BOTH.source_positions + 1))
    assert {token for source in sources for token in source} == set(range(BOTH.vocabulary))
    assert sources == random_sources(BOTH, 200, 5) != random_sources(BOTH, 200, 6)


@pytest.mark.parametrize("whole", [True, False])
def test_answers_are_drawn_for_their_sources(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """With room for one answer, those to the other sources are not kept."""
    told: list[tuple[int, int]] = []
    weights, sources = weights_of(BOTH), [[3, 4, 5], [6], [7, 8]]
    if not whole:
        rows = sample_texts(BOTH, weights, None, sources=sources, length=5, seed=1).rows
        row = sum(part.shape[1] * part.itemsize for part in rows.values())
        monkeypatch.setattr(module, "KEPT_BYTES", 5 * row)
    observed = sample_texts(
        BOTH,
        weights,
        None,
        sources=sources,
        length=5,
        seed=1,
        progress=lambda *done: told.append(done),
    )
    kept = sources if whole else sources[:1]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert observed.sources == tuple(map(len, kept))
    assert observed.tokens.shape == (len(kept), 5)
    assert set(observed.tokens[:, 0]) == {BOTH.start}
    for name in ("source.layers.0.key", "layers.1.cross.query", "layers.0.cross.key", "logits"):
        exact = []
        for source, tokens in zip(kept, observed.tokens, strict=True):
            cache = KvCache()
            encoded = forward(BOTH, weights, np.array([source]), cache, source=True)
            exact.append((encoded | forward(BOTH, weights, tokens[None], cache))[name][0])
        np.testing.assert_allclose(observed.rows[name], np.concatenate(exact), atol=1e-9)
    with pytest.raises(InputError, match=r"^Calibration needs at least one source$"):
        sample_texts(BOTH, weights, None, sources=[], length=5, seed=1)


def test_options_choose_the_texts() -> None:
    options = Quantization(texts=3, length=100, seed=7)
    drawn = calibration_texts(GPT, weights_of(GPT), None, options)
    assert drawn.tokens.shape == (3, GPT.positions)
    short = Quantization(texts=3, length=4, seed=7)
    assert calibration_texts(GPT, weights_of(GPT), 5, short).tokens[:, 0].tolist() == [5, 5, 5]
    given = calibration_texts(GPT, weights_of(GPT), 5, short, None, [[1, 2], [3]])
    assert given.tokens.tolist() == [[1, 2], [3, 1]]
    sources = random_sources(BOTH, 3, 7)
    answered = calibration_texts(BOTH, weights_of(BOTH), None, short)
    assert answered.sources == tuple(map(len, sources))
    asked = calibration_texts(BOTH, weights_of(BOTH), None, short, None, [[1, 2], [3]])
    assert asked.sources == (2, 1)


@pytest.mark.parametrize(("room", "kept"), [(8, 8), (3.5, 3), (0.4, 1)])
def test_rows_of_an_encoder_are_those_of_inputs_spread_evenly(
    monkeypatch: pytest.MonkeyPatch, room: float, kept: int
) -> None:
    """Room is in inputs; below one input's its first rows are kept."""
    model, name = ENCODER, "layers.1.mlp_input"
    weights, inputs = weights_of(model), inputs_of(model)
    exact = forward(model, weights, inputs)[name]
    monkeypatch.setattr(module, "KEPT_BYTES", int(room * exact[0].nbytes))
    observed = calibrate(model, weights, inputs, wanted=[name])
    rows = exact[[place * len(exact) // kept for place in range(kept)]]
    rows = rows[:, : max(1, int(room * rows.shape[1]))]
    np.testing.assert_allclose(observed.rows[name], rows.reshape(-1, rows.shape[2]))
    assert set(observed.rows) == {name}
    assert observed.tokens.shape == (0, 0)
    assert calibrate(model, weights, inputs).rows == {}


@pytest.mark.parametrize("percentile", [70.0, 55.0, 90.0, 99.0])
def test_percentiles_of_a_few_values_are_exact(percentile: float) -> None:
    for size in range(2, 12):
        model = ModelDescription(
            name="one", tokens=size, features=1, dim=2, layers=1, heads=1, ffn=2, classes=0
        )
        values = np.random.default_rng(size).normal(0, 1, (1, size, 1))
        observed = calibrate(model, weights_of(model), values, percentile).ranges["input"]
        low, high = np.percentile(values, [100 - percentile, percentile])
        assert (observed.low, observed.high) == pytest.approx(
            (min(low, 0), max(high, 0)), abs=1e-12
        )
