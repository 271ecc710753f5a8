"""Heads as wide as the array, or as several of its tile columns, are drained together."""

import numpy as np
import pytest

from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.tb.models.text_session import TextSession
from tests.support.decoders import CONFIGS, GPT, HELD, LLAMA, random_decoder, tokens_of
from tests.test_texts import go_on

FOUR = HELD.replace(lanes=4)
ODD = FOUR.replace(rows=7, cols=5, lanes=2, rotary=False, fused=False)
PASSING = CONFIGS["passing"].replace(lanes=4, scratchpad_bytes=1 << 14, param_depth=64)
WIDE = LLAMA.replace(name="wide", heads=4, kv_heads=4, head_dim=8)
SHARED = WIDE.replace(kv_heads=2)
CASES = {
    "alone": (WIDE, FOUR, 3),
    "shared keys": (SHARED, FOUR, 2),
    "one head": (WIDE.replace(heads=1, kv_heads=1), FOUR, 1),
    "tile columns": (WIDE.replace(head_dim=24), FOUR, 3),
    "odd columns": (GPT.replace(heads=3, kv_heads=3, head_dim=5), ODD, 2),
    "streamed": (SHARED, FOUR.replace(weight_depth=2), 2),
    "passing": (SHARED, PASSING, 2),
}
"""Model, machine, and the drains of a layer's context: of the first half, others, the last one."""
APART = {
    "rows of tile columns": (SHARED.replace(head_dim=16), FOUR, 4),
    "half a tile column": (WIDE.replace(head_dim=4), FOUR.replace(lanes=2), 4),
}


@pytest.mark.parametrize("case", CASES | APART)
def test_one_text(case):
    model, config, drains = (CASES | APART)[case]
    program = compile_text(random_decoder(model), config, context=9)
    names = [tensor.name for tensor in program.entries["step"].written]
    assert names.count("layers.0.context") == drains
    session, cache = TextSession(program, "golden"), KvCache(slots=9)
    for token in tokens_of(program.graph, 12):
        session.step(token)
        wanted = evaluate(program.graph, [token], cache)["logits"][0]
        assert np.array_equal(session.logits(), wanted)


@pytest.mark.parametrize("case", [name for name in CASES if name != "passing"])
def test_two_texts(case):
    model, config, drains = CASES[case]
    program = compile_text(random_decoder(model), config, context=9, texts=2)
    go_on(program, "golden", (10, 7), 2)
    names = [tensor.name for tensor in program.entries["step"].written]
    # Of the first text one, of the other one those whose products come before others'.
    assert names.count("layers.0.context") == 1 + drains


@pytest.mark.parametrize(("kv_heads", "head_dim"), [(2, 4), (4, 8)])
def test_the_circuit_is_the_golden_machine(kv_heads, head_dim):
    changes = {"vocabulary": 19, "positions": 16, "layers": 1, "dim": 8, "ffn": 12}
    model = WIDE.replace(kv_heads=kv_heads, head_dim=head_dim, **changes)
    config = HELD.replace(rows=4, cols=4, lanes=2, trace=True)
    program = compile_text(random_decoder(model), config, context=3)
    session = TextSession(program, "icarus")
    for token in tokens_of(program.graph, 4):
        session.step(token)
    assert sum(turn.mismatches for turn in (session.setup, *session.turns)) == 0
    assert sum(turn.tensors for turn in session.turns) > 34
