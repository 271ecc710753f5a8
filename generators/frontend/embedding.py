"""Embedding on the host: sums of trained vectors for each token's number, type and position."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Floats, Weights


def lookup(
    model: ModelDescription,
    weights: Weights,
    inputs: NDArray[np.generic],
    types: NDArray[np.integer] | None = None,
) -> Floats:
    """Return the embedding vectors of a batch of inputs, [count, sequence, dim].

    ``inputs`` has one of these shapes:

    - [count, n]: token numbers. ``types`` [count, n] are their token types, by default 0.
    - [count, n, 2]: token numbers and token types.
    - [count, n, dim]: vectors.

    Raises :class:`InputError` if inputs are invalid.
    """
    check_shape(model, np.asarray(inputs))
    if model.embedding == "tokens" and np.ndim(inputs) == 3:
        inputs, types = np.moveaxis(np.asarray(inputs), -1, 0)
    if model.embedding == "tokens":
        x = weights["words"][_numbers(model, "token", inputs, model.vocabulary)]
    else:
        x = np.asarray(inputs, np.float64)
    if model.types:
        type_numbers = np.zeros(inputs.shape[:2], np.int64) if types is None else types
        x = x + weights["types"][_numbers(model, "token type", type_numbers, model.types)]
    if model.class_token:
        token = np.broadcast_to(weights["class_token"], (len(x), 1, model.dim))
        x = np.concatenate([token, x], axis=1)  # [count, sequence, dim]
    if model.positions == "learned":
        x = x + weights["positions"][: x.shape[1]]
    return x


def accelerator_rows(
    model: ModelDescription, weights: Weights, inputs: NDArray[np.generic]
) -> Floats:
    """Return the rows [count, rows, columns] that the host writes to the accelerator.

    ``inputs`` is a batch of the model's inputs. If the accelerator computes a linear embedding, the
    rows are the inputs in float64. Otherwise the host computes the embedding by :func:`lookup`.
    """
    if model.embedding != "linear":
        return lookup(model, weights, inputs)
    check_shape(model, inputs)
    return np.asarray(inputs, np.float64)


def check_shape(model: ModelDescription, inputs: NDArray[np.generic]) -> None:
    """Raise :class:`InputError` if a batch of inputs has a shape that the model does not accept."""
    expected = ["count", model.tokens, model.features]
    shape = list(inputs.shape)
    if model.embedding == "tokens":
        expected.pop()
        if model.types and shape[2:] == [2]:
            shape.pop()
    fits = len(shape) == len(expected) and shape[2:] == expected[2:]
    if model.variable:
        fits = fits and 1 <= shape[1] <= model.tokens
    else:
        fits = fits and shape[1] == model.tokens
    if not fits:
        most = "at most " if model.variable else ""
        text = ", ".join(["count", f"{most}{model.tokens}", *map(str, expected[2:])])
        raise InputError(f"Inputs of model {model.name} must have the shape [{text}], not {shape}")


def _numbers(
    model: ModelDescription, name: str, values: NDArray[np.generic], count: int
) -> NDArray[np.int64]:
    """Return row numbers after checking that they are integers from 0 to ``count - 1``."""
    numbers = np.asarray(values)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"Model {model.name} takes {name} numbers, not {numbers.dtype}")
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if wrong.size:
        raise InputError(f"Model {model.name} has no {name} {wrong[0]}; the last is {count - 1}")
    return numbers.astype(np.int64)
