"""Comparison of compiled models' tensors with the integer reference."""

from collections.abc import Mapping, Sequence

import numpy as np

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.tensors import Ints
from celosia.generators.lower.artefact import Artefact
from celosia.generators.reference.cache import in_window
from celosia.generators.reference.integers import evaluate, taken_in


def in_use(name: str, tensor: Ints, model: ModelDescription, length: int) -> Ints:
    """Return a tensor without the elements that its inference does not use.

    Unused elements belong to padding tokens, or to pairs of tokens outside of the attention window.
    ``name`` is the name of ``tensor``, and ``length`` is the number of tokens without padding.

    - Scores and probabilities, [heads, rows, sequence], of a model with an attention window:
      elements outside of the window are replaced by 0. Elements of padding tokens inside the window
      remain.
    - Scores and probabilities of a model without an attention window: only the first ``length``
      rows and columns of each head are returned.
    - Any other tensor with one row for each token: only the first ``length`` rows are returned.
    - A tensor without a row for each token: the whole tensor is returned.

    If the model has a fixed number of tokens, there are no padding tokens. No rows or columns are
    then removed.
    """
    pairs = name.rpartition(".")[2] in ("scores", "probabilities")
    if pairs and model.window:
        tokens = tensor.shape[-1]  # of an input of a batch
        seen = in_window(tokens, model.window, model.global_tokens)
        return tensor * np.tile(seen, (tensor.shape[-2] // tokens, 1))
    if not model.variable:
        return tensor
    if pairs:
        return tensor[:, :length, :length]
    return tensor[:length] if len(tensor) == model.sequence else tensor


def _stacked(runs: Sequence[Mapping[str, Ints]]) -> dict[str, Ints]:
    """Return the tensors of a batch: the rows of all inputs, concatenated."""
    return {name: np.concatenate([each[name] for each in runs], axis=-2) for name in runs[0]}


def differing(
    compiled: Artefact,
    tensors: Mapping[str, Ints],
    values: Floats,
    bits: int = OPERAND_BITS,
    output: Ints | None = None,
) -> tuple[list[str], int]:
    """Return the names of wrong tensors, and the number of compared tensors.

    A tensor is wrong if it differs from the tensor of the integer reference, which computes the
    quantized model without its programs. ``tensors`` are the tensors of an inference with the input
    ``values``, from :meth:`celosia.generators.runtime.golden.GoldenModel.tensors`. If the weights
    are nested (readable at several widths), ``bits`` is the width at which they were read.

    ``output`` is the array of integers that the host reads as the model's output. If ``output``
    differs from the reference, the name ``read by the host`` is added to the names. If ``output``
    is None, the output is not compared.

    Transposed copies of tensors are not compared. If the configuration's field ``fused`` is set,
    the inputs of softmax and norm are not compared, because they are never written to memory.
    """
    model, length = compiled.graph.description, compiled.length(len(values))
    inputs, last = np.split(values, compiled.batch), compiled.graph.output
    runs = [evaluate(compiled.graph_at(bits), each) for each in inputs]
    expected = _stacked(runs)
    inside = taken_in(compiled.graph) if compiled.config.fused else set()
    copies = {name for name in tensors if name.endswith("_transposed")}
    names = (expected.keys() | tensors.keys()) - inside - copies
    wrong = [
        name
        for name in sorted(names)
        if not (
            name in tensors
            and name in expected
            and np.array_equal(
                *(in_use(name, each[name], model, length) for each in (tensors, expected))
            )
        )
    ]
    if output is not None:
        # The output may be the first rows of the last tensor.
        ends = [run.get(last.name, [*run.values()][-1])[: last.rows] for run in runs]
        pair = (in_use(last.name, each, model, length) for each in (output, np.concatenate(ends)))
        wrong += [] if np.array_equal(*pair) else ["read by the host"]
    return wrong, len(names)
