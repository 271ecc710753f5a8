"""Conversion of a quantized model, so that one run computes several inputs."""

from dataclasses import replace
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.rebuilt import rebuilt
from celosia.generators.graph.tensors import Tensor


def batched(model: QuantizedModel, count: int) -> QuantizedModel:
    """Return a model that computes ``count`` inputs in one run.

    Row ``i * rows + j`` of a tensor is row j of input i. Raises :class:`InputError` if ``count`` is
    not positive. A ``count`` above 1 is also refused for models with inputs of variable length, a
    class token or class pooling.
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
