"""Masks of missing tokens in ONNX graphs: each place that a mask must have, alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.named_inputs import NamedInputs
from celosia.generators.frontend.onnx.function_cache import FunctionCache
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.frontend.onnx.inputs import GraphInput
from celosia.generators.frontend.onnx.node import Node
from celosia.generators.frontend.onnx.nodes import symbolic_outputs
from celosia.generators.frontend.onnx.norms import shared_mean, zeroed_padding
from celosia.generators.frontend.onnx.values import (
    Input,
    Mask,
    UnsupportedError,
    View,
    ZeroedPadding,
)
from tests.test_onnx_forms import FLOAT, INT, Form

INT8, ROWS, COLUMNS = 3, 3, 2
SOURCE = Input(node="x", rows=ROWS, columns=COLUMNS, tokens=False)
WHOLE = np.ones((ROWS, 1))


def node() -> Node:
    nothing: Any = None
    return Node("n", "Mul", (), {}, nothing, 17, FunctionCache())


@pytest.mark.parametrize("missing", [(), (0,), (1,), (2,), (1, 2)])
def test_a_mask_of_rows_takes_the_last_row_alone(missing) -> None:
    """Without its last token a mask is 0 in the last row, and there alone."""
    cut = WHOLE.copy()
    cut[list(missing)] = 0
    view = View(SOURCE, (ROWS, COLUMNS))
    if missing == (2,):
        tensor = zeroed_padding(node(), view, Mask(WHOLE, cut)).tensor
        assert isinstance(tensor, ZeroedPadding)
        assert (tensor.source, tensor.summed) == (SOURCE, False)
        with pytest.raises(UnsupportedError, match="something else than scores or rows"):
            zeroed_padding(node(), view, Mask(2 * WHOLE, cut))
    else:
        with pytest.raises(UnsupportedError, match="something else than scores or rows"):
            zeroed_padding(node(), view, Mask(WHOLE, cut))


@pytest.mark.parametrize(("full", "cut"), [(3, 2), (3, 3), (2, 2), (2, 1), (3, 1)])
def test_a_sum_is_divided_by_the_tokens_that_are_there(full, cut) -> None:
    view = View(SOURCE.into(ZeroedPadding, "sum", rows=1, summed=True), (1, COLUMNS))
    mask = Mask(np.array([full]), np.array([cut]))
    if (full, cut) == (3, 2):
        assert shared_mean(node(), view, mask).tensor.rows == 1
    else:
        with pytest.raises(UnsupportedError, match="something else than the number of tokens"):
            shared_mean(node(), view, mask)


@pytest.mark.parametrize("kind", ["mask", "padding", "places", "types", "length", "past"])
def test_inputs_that_follow_from_others_have_their_type(kind: str) -> None:
    made = GraphInput("input", (1, ROWS), kind, np.dtype(np.int32)).array_for(2)
    right = {"mask": [1, 1, 0], "padding": [0, 0, 1], "places": [0, 1, 2], "length": [2, 2, 2]}
    assert (made.dtype, made.tolist()) == (np.int32, [right.get(kind, [0, 0, 0])])


def test_the_size_of_data_is_a_constant() -> None:
    def fold(inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array(inputs[0].size)]

    view = View(SOURCE, (ROWS, COLUMNS))
    assert symbolic_outputs(Node("n", "Size", [view], {}, fold, 17, FunctionCache())) == [
        ROWS * COLUMNS
    ]


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_a_mean_over_few_tokens_differs(tmp_path, scale: float) -> None:
    """A divisor of at least 3 is the number of tokens only in inputs of 3 tokens or more.

    Outputs are compared by their own magnitude.
    """
    form = Form()
    number = form.add("Cast", "attention_mask", to=FLOAT)
    added = form.add("Mul", form.add("Sub", np.float32(1), number), np.float32(-1e9))
    x = form.block(form.linear("x", 6), form.add("Unsqueeze", added, np.array([1, 2])))
    kept = form.add("Mul", x, form.add("Unsqueeze", number, np.array([2])))
    count = form.add("ReduceSum", number, np.array([1]), keepdims=1)
    total = form.add("ReduceSum", kept, np.array([1]), keepdims=0)
    mean = form.add("Div", total, form.add("Clip", count, np.float32(3)))
    inputs = [("x", FLOAT, [1, 4, 6]), ("attention_mask", INT, [1, 4])]
    path = form.write(tmp_path / "model.onnx", form.add("Mul", mean, np.float32(scale)), inputs, 2)
    with pytest.raises(InputError, match="outputs of 1 tokens differ by"):
        load_onnx(path)


@pytest.mark.parametrize(
    ("kind", "run", "bound"),
    [
        ("Greater", np.greater, 1),
        ("Less", np.less, 900),
        ("Equal", np.equal, 0.5),
        ("Equal", np.equal, 3),
        ("Cast", lambda numbers: numbers.astype(np.int8), None),
    ],
)
def test_a_comparison_hides_other_tokens_than_one(kind, run, bound) -> None:
    """A second number is refused too, and a cast to numbers that do not hold all tokens."""
    tokens = View(replace(SOURCE, columns=1, tokens=True), (1, ROWS))
    inputs = [tokens] if bound is None else [tokens, np.array(bound)]
    made = Node("n", kind, inputs, {"to": INT8}, lambda i: [run(*i)], 17, FunctionCache())
    if bound == 3:
        (mask,) = symbolic_outputs(made)
        assert (mask.full.any(), mask.cut.tolist()) == (False, [[False, False, True]])
        made.cache.padding = 2
    with pytest.raises(UnsupportedError, match=r"compare token numbers with that|other numbers"):
        symbolic_outputs(made)


@pytest.mark.parametrize("mask", [[1, 1, 2], [0.5, 0, 0], [1, 0, -1]])
def test_a_mask_has_other_numbers(mask) -> None:
    named = NamedInputs("x", masks=(("mask", "mask"),))
    sample = {"x": np.zeros((3, 2)), "mask": np.array(mask)}
    with pytest.raises(InputError, match="Input mask must be 1 for each of the 3 tokens"):
        named.split_sample("model", sample)
