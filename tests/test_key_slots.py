"""Key heads that share weight slots where these are few, against the integer decoder."""

import re
from itertools import pairwise

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.graph.tensors import Rescale
from celosia.generators.lower.accumulators import Accumulators
from celosia.generators.lower.equipment import equipped
from celosia.generators.lower.key_slots import (
    even_runs,
    most_key_heads,
    query_places,
    query_starts,
    with_zero_columns,
)
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.sim.checker import check
from celosia.tb.models.text_session import TextSession
from tests.support.decoders import GPT, HELD, LLAMA, random_decoder, tokens_of
from tests.support.longer import longer
from tests.test_texts import go_on

BASE = HELD.replace(lanes=2, weight_depth=4096, program_depth=1 << 14, param_depth=1024)
OPTIONS = {"texts": 2, "length": 24}
FOUR = LLAMA.replace(name="four", heads=4, kv_heads=4, head_dim=4)
CASES = {
    "a pair": (FOUR, {"rows": 8, "cols": 4}, {}, {}),
    "an odd number": (LLAMA, {"rows": 9, "cols": 4}, {}, {}),
    "three": (LLAMA.replace(heads=5, kv_heads=5, head_dim=4), {"rows": 13, "cols": 4}, {}, {}),
    "tile columns": (FOUR.replace(head_dim=8), {"rows": 16, "cols": 4}, {}, {}),
    "learned": (GPT.replace(heads=6, head_dim=3), {"rows": 7, "cols": 3, "lanes": 1}, {}, {}),
    "unfused": (FOUR, {"rows": 8, "cols": 4, "fused": False}, {}, {}),
    "a tree": (
        FOUR,
        {"rows": 10, "cols": 4, "array": "tree", "zero_points": False, "operand_gating": False},
        {},
        {},
    ),
    "wide": (FOUR, {"rows": 8, "cols": 4}, {"activations": "mixed"}, {}),
    "corrected": (FOUR, {"rows": 8, "cols": 4}, {"weights": "int4", "low_rank": 3}, {}),
    "made anew": (FOUR.replace(layers=3), {"rows": 8, "cols": 4}, {}, {"recompute": True}),
}


def pressed(case, **compile_options):
    """Return the programs of a case with the fewest slots that suffice, and those with more."""
    model, changes, options, more = CASES[case]
    asked = Quantization(**OPTIONS, **options)
    decoder = untrained(model, asked)
    config = equipped(BASE.replace(wide_operands="activations" in options), asked)
    config = config.replace(
        **{"rotary": model.position == "rotary", **changes},
    )
    apart = compile_text(decoder, config, context=11, sinks=2, **more, **compile_options)
    fewer = config.replace(weight_depth=apart.slots - 1)
    return compile_text(decoder, fewer, context=11, sinks=2, **more, **compile_options), apart


def heads_of_slot(program):
    model = program.graph.description
    return min(model.kv_heads, program.config.array.rows // program.graph.key_dim)


@pytest.mark.parametrize("case", CASES)
def test_steps_and_chunks_are_the_golden_models(case):
    program, apart = pressed(case)
    model, together = program.graph.description, heads_of_slot(program)
    assert together > 1
    saved = model.kv_heads - -(-model.kv_heads // together)
    layers = 1 if program.cache.recompute else model.layers
    assert apart.slots - program.slots == layers * saved * -(-11 // program.config.array.cols)
    session = TextSession(program, "golden")
    tokens = tokens_of(program.graph, min(17, program.places))
    cache = KvCache(slots=11, sinks=2)
    for position, token in enumerate(tokens):
        turn = session.step(token)
        assert np.array_equal(
            session.logits(), evaluate(program.graph, [token], cache)["logits"][0]
        )
        if not program.cache.recompute:
            above = sum(head // model.group % together for head in range(model.heads))
            zeros = above * program.graph.key_dim * program.cache.count(position) * model.layers
            assert turn.counters["macs"] == program.macs(position) + zeros
    assert program.rows > 1
    for count in (2, program.rows, 11):
        session.begin()
        session.take(tokens[:count])
        wanted = evaluate(program.graph, tokens[:count])["logits"][-1]
        assert np.array_equal(session.logits(), wanted)


def test_heads_that_share_keys_after_zeros_that_are_left_out():
    model = FOUR.replace(name="shared", kv_heads=2, layers=1)
    decoder, config = untrained(model, Quantization(**OPTIONS)), BASE.replace(rows=8, cols=4)
    needed = compile_text(decoder, config, context=4, rows=1).slots - 1
    program = compile_text(decoder, config.replace(weight_depth=needed), context=4, rows=1)
    session, cache = TextSession(program, "golden"), KvCache(slots=4)
    for token in tokens_of(decoder, 3):
        session.step(token)
        assert np.array_equal(session.logits(), evaluate(decoder, [token], cache)["logits"][0])


@pytest.mark.parametrize(
    "case",
    [
        *("an odd number", "tile columns", "learned", "a tree", "wide", "corrected"),
        *longer("a pair", "three", "unfused"),
    ],
)
def test_two_texts(case):
    program, _ = pressed(case, texts=2)
    go_on(program, "golden", (14, 9), 1, bits=8)
    registers = [0] * 16
    for register, value in program.steps([10, 3])[0].registers.items():
        registers[register] = value
    assert check(program.words, program.config, program.entries["step"].pc, registers) > 20


def test_keys_of_a_slot_are_appended_together():
    program, apart = pressed("a pair")

    def count(programs):
        words = programs.words[programs.entries["step"].pc :]
        steps = unpack(words)
        return sum(step.opcode == Opcode.PRELOAD and "b_transpose" in step.flags for step in steps)

    assert count(apart) == 2 * count(program) > 0


@pytest.mark.long
@pytest.mark.parametrize("texts", [2, 1])
def test_the_circuit_is_the_golden_machine(texts):
    model = FOUR.replace(
        **{"name": "mini", "vocabulary": 19, "positions": 16, "dim": 8, "layers": 2},
        **{"heads": 4, "kv_heads": 2, "head_dim": 4, "ffn": 12},
    )
    config = BASE.replace(trace=True, rows=8, cols=4)
    decoder = random_decoder(model)
    slots = compile_text(decoder, config, context=6, texts=texts).slots
    program = compile_text(decoder, config.replace(weight_depth=slots - 1), context=6, texts=texts)
    if texts == 2:
        session = go_on(program, "icarus", (9, 6), 2, bits=8)
    else:
        session = TextSession(program, "icarus")
        for token in tokens_of(decoder, 9):
            session.step(token)
    assert sum(turn.mismatches for turn in (session.setup, *session.turns)) == 0
    assert sum(turn.tensors for turn in session.turns) > 80


def test_what_does_not_fit():
    program, _ = pressed("a pair")
    needed = program.slots
    message = f"Model four needs {needed} weight slots of 8 x 4, but"
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        compile_text(
            program.graph, program.config.replace(weight_depth=needed - 1), context=11, sinks=2
        )


@pytest.mark.parametrize(
    ("changes", "heads"),
    [
        ({"rows": 8, "cols": 4}, 2),
        ({"rows": 64, "cols": 4}, 4),
        ({"rows": 7, "cols": 4}, 1),
        ({"rows": 8, "cols": 8}, 1),
        ({"rows": 8, "cols": 4, "weight_depth": 2}, 1),
    ],
)
def test_key_heads_of_a_slot(changes, heads):
    assert most_key_heads(random_decoder(FOUR), BASE.replace(**changes)) == heads


def test_queries_have_zeros_ahead_of_them():
    decoder = random_decoder(LLAMA.replace(heads=6, kv_heads=3, head_dim=4))
    assert query_starts(decoder, 1) == [0, 4, 8, 12, 16, 20, 24]
    assert query_starts(decoder, 2) == [0, 4, 12, 20, 24, 28, 32]
    assert query_starts(decoder, 3) == [0, 4, 12, 20, 32, 44, 48]
    assert query_places(decoder, 2, 2) == [0, 1, 2, 3, 6, 7, 10, 11, 12, 13, 14, 15]
    assert query_places(decoder, 1, 2) == []


def test_parameters_of_columns_between_make_zeros():
    rescale = Rescale(np.array([5, 6, 7, 8]), np.array([9, 8, 7, 6]), np.array([1, 2, 3, 4]))
    wider = with_zero_columns(rescale, [1, 3], 2)
    assert wider.bias.tolist() == [0, 0, 5, 6, 0, 0, 7, 8]
    assert wider.multiplier.tolist() == [9, 9, 9, 8, 9, 9, 7, 6]
    assert wider.shift.tolist() == [1, 1, 1, 2, 1, 1, 3, 4]


@pytest.mark.parametrize("places", [[0], [0, 1, 3, 5, 6, 7], [2, 4, 6, 7, 8], [0, 5, 6], [3]])
def test_runs_are_equally_far_apart(places):
    runs = [*even_runs(places)]
    reached = []
    for first, count, distance in runs:
        reached += [places[first] + distance * each for each in range(count)]
    assert reached == places
    assert len(runs) <= 1 + sum(b - a != 1 for a, b in pairwise(places))


def test_sums_that_are_there_later_have_rows_from_the_end():
    rows = Accumulators(BASE.replace(acc_depth=17), "toy")
    assert rows.named("a", 3) == 0
    assert rows.named("b", 5, later=True) == 10
    assert rows.named("c", 9) == 4
    assert rows.named("d", 9, later=True) == 0
    assert (rows.named("b", 5, later=True), rows.named("c", 9)) == (10, 4)
    for later, needed in ((False, 18), (True, 18)):
        message = f"^Model toy needs {needed} accumulator rows or more, but acc_depth is 17$"
        with pytest.raises(InputError, match=message):
            rows.named("e", 4 if not later else 2, later=later)
