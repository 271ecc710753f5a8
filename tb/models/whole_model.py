"""Comparison of compiled models' tensors with the integer reference."""

from collections.abc import Mapping, Sequence

import numpy as np

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.tensors import Ints
from celosia.generators.lower.encoder_compiler import CompiledModel
from celosia.generators.reference.cache import in_window
from celosia.generators.reference.integers import evaluate, taken_in


def in_use(name: str, tensor: Ints, model: ModelDescription, length: int) -> Ints:
    """Return a tensor without padding: the part that an inference with ``length`` tokens uses.

    Scores and probabilities are [heads, sequence, sequence], other tensors [rows, columns].
    """
    pairs = name.rpartition(".")[2] in ("scores", "probabilities")
    if pairs and model.window:
        return tensor * in_window(tensor.shape[-1], model.window, model.global_tokens)
    if not model.variable:
        return tensor
    if pairs:
        return tensor[:, :length, :length]
    return tensor[:length] if len(tensor) == model.sequence else tensor


def _stacked(runs: Sequence[Mapping[str, Ints]]) -> dict[str, Ints]:
    """Return the tensors of a batch: the rows of all inputs, concatenated."""
    return {name: np.concatenate([each[name] for each in runs], axis=-2) for name in runs[0]}


def differing(
    compiled: CompiledModel,
    tensors: Mapping[str, Ints],
    values: Floats,
    bits: int = OPERAND_BITS,
) -> tuple[list[str], int]:
    """Return the names of tensors that differ from the integer reference, and the number compared.

    ``tensors`` is the result of :meth:`celosia.generators.runtime.golden.GoldenModel.tensors` for
    the input ``values``. Nested weights, which can be read at several widths, were read with
    ``bits`` bits. Transposed copies are not compared; tensors that the configuration never writes
    to memory are not compared either.
    """
    model, length = compiled.quantized.description, compiled.length(len(values))
    expected = _stacked(
        [evaluate(compiled.model_at(bits), each) for each in np.split(values, compiled.batch)]
    )
    inside = taken_in(compiled.quantized) if compiled.config.fused else set()
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
    return wrong, len(names)
