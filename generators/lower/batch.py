"""A quantized model for several inputs at once: their rows lie one below the other."""

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np

from arch.errors import InputError
from generators.graph import QuantizedModel, Tensor


def batched(model: QuantizedModel, count: int) -> QuantizedModel:
    """Return the model for ``count`` inputs, each tensor with as many times the rows.

    Row ``i * rows + j`` is row j of input i. Weights stay as they are, so that each is loaded once
    for all inputs. Raises :class:`InputError` where the count is not positive, where inputs differ
    in length, or where a model takes or gives single rows of a sequence.
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

    def stacked(tensor: Tensor) -> Tensor:
        return replace(tensor, rows=count * tensor.rows)

    def whole(op: Any) -> Any:
        fields = {field.name: getattr(op, field.name) for field in dataclasses.fields(op)}
        tensors = {n: stacked(value) for n, value in fields.items() if isinstance(value, Tensor)}
        found = replace(op, **tensors)
        low = fields.get("low_rank")
        return (
            found if low is None else replace(found, low_rank=replace(low, first=whole(low.first)))
        )

    return replace(
        model,
        input=stacked(model.input),
        output=stacked(model.output),
        stream=stacked(model.stream),
        start=None if model.start is None else np.tile(model.start, (count, 1)),
        before=tuple(map(whole, model.before)),
        layers=tuple(tuple(map(whole, layer)) for layer in model.layers),
        after=tuple(map(whole, model.after)),
    )
