"""stories260K, a language model trained by others, on the machine `story`."""

from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.integers import evaluate
from celosia.tb.models.text_session import TextSession

STORIES = Path(__file__).parents[1] / "examples" / "stories260k"
COUNT, STEPS = 129, 40
"""Tokens of a true text, and those that are taken one by one."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def story():
    source = load_text(str(STORIES / "stories260K.bin"), STORIES / "tok512.bin")
    decoder = source.quantize(Quantization(texts=2, length=160))
    text = (STORIES / "evaluation.txt").read_text(encoding="utf-8").split("<|endoftext|>")[0]
    config = PRESETS["story"].replace(trace=True)
    return compile_text(decoder, config, context=512), source.tokenizer.encode(text.strip())[:COUNT]


def test_token_by_token_is_each_prompt_at_once(story) -> None:
    # The next test has more tokens.
    program, tokens = story[0], story[1][:STEPS]
    # [tokens, vocabulary], computed from scratch
    wanted = evaluate(program.graph, tokens)["logits"]
    session = TextSession(program, "golden")
    spent = []
    for token, logits in zip(tokens, wanted, strict=True):
        spent.append(session.step(token).counters["macs"])
        assert np.array_equal(session.logits(), logits)
        assert session.choose() == np.argmax(logits)
    for count in (1, 2, 13, 14, STEPS):
        session.begin()
        again = session.take(tokens[:count])
        assert np.array_equal(session.logits(), wanted[count - 1])
        # A step has the products of its own token, a prompt those of all but their logits.
        scores = (count - 1) * program.graph.description.dim * len(wanted[0])
        assert again.counters["macs"] >= sum(spent[:count]) - scores
        assert again.counters["macs"] > 0.7 * count * spent[0] or count < 3


def test_a_token_in_4500_cycles_on_156_multipliers(story) -> None:
    program, tokens = story
    assert program.config.elements <= 156
    session = TextSession(program, "verilator")
    prompt = session.take(tokens[:128])
    turn = session.step(tokens[128])
    session.choose()
    assert session.setup.mismatches == prompt.mismatches == turn.mismatches == 0
    assert turn.tensors > 50
    assert turn.counters["loaded"] == turn.counters["stored"] == 0
    assert turn.counters["macs"] == program.macs(128)
    assert turn.cycles <= 4500
