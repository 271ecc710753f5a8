"""Batches: a quantized model for several inputs, whose rows are concatenated."""

from dataclasses import replace
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.rebuilt import rebuilt
from celosia.generators.graph.tensors import Tensor


def batched(model: QuantizedModel, count: int) -> QuantizedModel:
    """Return the model for a batch of ``count`` inputs; tensors have ``count`` times the rows.

    Row ``i * rows + j`` is row j of input i. Weights are not repeated, so that each is loaded once
    for all inputs. Raises :class:`InputError` if the count is not positive, if inputs differ in
    length, or if a model reads or writes single rows of a sequence.
    """
    description = model.description
    if count < 1:
        raise InputError(f"Inputs of a batch must be at least 1, not {count}")
    if count == 1:
        return model
    for field, excluded in (
        ("variable", description.variable),
        ("class_token", description.class_token),
        ("pooling", description.pooling == "class"),
    ):
        if excluded:
            value = str(getattr(description, field)).lower()
            raise InputError(
                f"Model {description.name} has {field} {value}, which excludes a batch of {count}"
            )

    def stacked(part: Any) -> Tensor | None:
        return replace(part, rows=count * part.rows) if isinstance(part, Tensor) else None

    stacked_model = rebuilt(model, stacked)
    return (
        stacked_model
        if model.start is None
        else replace(stacked_model, start=np.tile(model.start, (count, 1)))
    )
