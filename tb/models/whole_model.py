"""Comparison of compiled models' tensors with the integer reference."""

from collections.abc import Mapping, Sequence

import numpy as np

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.tensors import Ints
from celosia.generators.lower.artefact import Artefact
from celosia.generators.reference.cache import in_window
from celosia.generators.reference.integers import evaluate, fused_away


def in_use(name: str, tensor: Ints, model: ModelDescription, length: int) -> Ints:
    """Return the elements of a tensor that a comparison of two tensors must include.

    Rows of padding (from row ``length`` on) are removed, and in attention scores and probabilities
    also columns of padding. If the model has an attention window, scores and probabilities outside
    of the window become 0 instead.
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
    """Return the names of tensors that differ from the integer reference, and the number compared.

    ``tensors`` are the golden machine's tensors for the input ``values``, computed with the upper
    ``bits`` bits of each weight. A wrong ``output`` is named ``read by the host``. Transposed
    copies and fused inputs are not compared.
    """
    model, length = compiled.graph.description, compiled.length(len(values))
    inputs, last = np.split(values, compiled.batch), compiled.graph.output
    runs = [evaluate(compiled.graph_at(bits), each) for each in inputs]
    expected = _stacked(runs)
    inside = fused_away(compiled.graph) if compiled.config.fused else set()
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
