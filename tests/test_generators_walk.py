"""The order of operations: steps of a graph, steps of attention, rows of accumulators."""

from functools import cache, partial

import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.graph.operations import Attention, Gate, Linear, Norm, Rotary
from celosia.generators.lower.accumulators import Accumulators
from celosia.generators.lower.attention import pipeline
from celosia.generators.lower.walk import ending_ahead, steps
from celosia.generators.quantize.options import Quantization

MODEL = TextDescription(
    name="toy", vocabulary=11, positions=8, dim=8, layers=2, heads=2, kv_heads=1, ffn=12
)


@cache
def decoder():
    return untrained(MODEL, Quantization(texts=1, length=8))


def test_every_operation_is_in_one_step_in_order() -> None:
    for ops in (*decoder().layers, decoder().after):
        walked = [*steps(ops, name="layer")]
        labels = [f"layer.{ops.index(step.op)}" for step in walked]
        assert [step.label for step in walked] == labels
        assert [id(op) for step in walked for op in (step.op, *step.behind)] == [*map(id, ops)]


def test_what_works_row_by_row_is_behind_what_it_follows() -> None:
    _, layer, _, _ = ending_ahead(decoder())
    kinds = [(type(step.op), [type(op) for op in step.behind]) for step in steps(layer)]
    assert kinds == [
        (Linear, [Rotary]),
        (Linear, [Rotary]),
        (Linear, []),
        (Attention, []),
        (Linear, [Norm]),
        (Linear, []),
        (Linear, [Gate]),
        (Linear, [Norm]),
    ]


def test_sections_end_with_the_norm_of_the_next() -> None:
    graph = decoder()
    before, *layers, after = ending_ahead(graph)
    assert [type(op) for op in after] == [Linear]
    assert before[-1] is graph.layers[0][0]
    assert layers[0][-1] is graph.layers[1][0]
    assert layers[1][-1] is graph.after[0]
    assert sum(map(len, (before, *layers, after))) == len(graph.ops)


def test_a_step_ends_where_something_does_not_fit() -> None:
    layer = decoder().layers[0]
    parted = [*steps(layer, lambda op, behind: not isinstance(behind[-1], Gate))]
    whole = [*steps(layer)]
    assert len(parted) == len(whole) + 1
    (apart,) = (step for step in parted if isinstance(step.op, Gate))
    assert apart.behind == ()


def test_probabilities_come_ahead_of_the_contexts_of_the_step_before() -> None:
    def order(probabilities: str, contexts: str) -> str:
        steps = ([partial(iter, name) for name in names] for names in (probabilities, contexts))
        return "".join(pipeline(*steps))

    assert order("abc", "ABC") == "abAcBC"
    assert order("ab", "ABCD") == "abABCD"
    assert order("a", "AB") == "aAB"
    assert order("", "") == ""


def test_accumulators_give_rows_in_turn_and_names_their_own() -> None:
    rows = Accumulators(PRESETS["small"].replace(acc_depth=16), "toy")
    assert [rows.take(6) for _ in range(4)] == [0, 6, 0, 6]
    rows.restart()
    assert rows.take(1) == 0
    assert [rows.named(name, 3) for name in ("a", "b", "a")] == [0, 4, 0]
    assert (rows.height(30), rows.tiles(4)) == (8, 2)
    message = "^Model toy needs 18 accumulator rows or more, but acc_depth is 16$"
    with pytest.raises(ValueError, match=message):
        rows.named("c", 10)
