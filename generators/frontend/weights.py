"""Float weights from safetensors files, checked against a model's description."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from celosia.arch.errors import InputError, close
from celosia.arch.files import reading, within
from celosia.generators.frontend.base_description import Description, read_fields
from celosia.generators.frontend.description import ModelDescription

Floats = NDArray[np.float64]
Weights = Mapping[str, Floats]


_MODELS = Path(__file__).parents[1] / "models"
DESCRIPTION_FILE = "model.toml"
WEIGHTS_FILE = "weights.safetensors"
_SCALE = "_scale"
"""End of the name of a tensor of codes' scales."""


def model_names() -> list[str]:
    """Return the names of the encoders that come with the package."""
    return sorted(path.parent.name for path in _MODELS.glob(f"*/{DESCRIPTION_FILE}"))


def load_model(source: str) -> tuple[ModelDescription, Weights]:
    """Return an encoder's description and weights.

    ``source`` is the name of a packaged model, or a folder with ``model.toml`` and
    ``weights.safetensors``. Raises :class:`InputError` if the model does not exist or cannot be
    read, or if its weights are not those of its description.
    """
    names = model_names()
    folder = _MODELS / source if source in names else Path(source)
    with reading(folder, "model"):
        present = folder.is_dir()
    if not present:
        raise InputError(
            f"Unknown model {source!r};{close(source, names)} use a folder with "
            f"{DESCRIPTION_FILE} and {WEIGHTS_FILE}, or one of {', '.join(names)}"
        )
    description = read_fields(folder / DESCRIPTION_FILE, ModelDescription)
    return description, read_weights(folder / WEIGHTS_FILE, description)


def read_weights(path: Path, description: Description) -> Weights:
    """Return the weights in a safetensors file: a dictionary from name to array in float64.

    ``description`` lists the tensors that the file must contain. Raises :class:`InputError` if the
    file cannot be read (:func:`read_tensors`) or its tensors do not fit (:func:`check_weights`).
    """
    tensors = read_tensors(path)
    with within(path):
        return check_weights(tensors, description)


def read_tensors(path: Path) -> Mapping[str, NDArray[np.generic]]:
    """Return the tensors in a safetensors file: a dictionary from name to array.

    An integer tensor ``NAME`` is multiplied by its scales ``NAME_scale`` ([n, 1, ...] or one
    number), which are not returned. Raises :class:`InputError` if the file cannot be read or is
    corrupt.
    """
    with reading(path, "weights"):
        content = path.read_bytes()
    try:
        tensors = {name: _array(part) for name, part in _deserialize(content)}
        scaled = [name for name in tensors if _is_scaled(name, tensors)]
        return {
            name: np.multiply(tensor, tensors[f"{name}{_SCALE}"], dtype=np.float64)
            if name in scaled
            else tensor
            for name, tensor in tensors.items()
            if name.removesuffix(_SCALE) not in scaled or name in scaled
        }
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            f"Weights {path} are not a safetensors file of numbers: {error}"
        ) from error


def _is_scaled(name: str, tensors: Mapping[str, NDArray[np.generic]]) -> bool:
    """Return whether a tensor has integers, and scales of its rows or one for all."""
    codes, scales = tensors[name], tensors.get(f"{name}{_SCALE}")
    if scales is None or codes.dtype.kind not in "iu":
        return False
    return scales.shape in ((*codes.shape[:1], *[1] * (codes.ndim - 1)), (1,), ())


LEAST_WEIGHT, MOST_WEIGHT = 1e-30, 1e30
"""The largest number of a tensor must be in this range, or 0: float64 then holds every product."""

_deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize
_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
"""NumPy's name of each type of elements, except ``BF16``, the upper half of a float32."""


def _array(part: Mapping[str, Any]) -> NDArray[np.generic]:
    """Return one tensor; raise :class:`InputError` if the type of its elements is not known."""
    kind, data = part["dtype"], part["data"]
    if kind == "BF16":
        halves = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return halves.view(np.float32).reshape(part["shape"])
    if kind not in _TYPES:
        raise InputError(f"elements of type {kind} are not read; save the model in float32")
    return np.frombuffer(data, _TYPES[kind]).reshape(part["shape"])


def check_floats(name: str, tensor: NDArray[np.generic]) -> None:
    """Raise :class:`InputError` if the weight tensor ``name`` has integers instead of floats.

    Integers are quantized weights, which cannot be used without their scales. If a file has the
    scales, :func:`read_tensors` has already converted the integers to floats.
    """
    if tensor.dtype.kind != "f":
        raise InputError(
            f"Weight {name!r} is stored as {tensor.dtype}, without scales of its rows in "
            f"{name + _SCALE!r}; save the model in float32"
        )


def check_weights(tensors: Mapping[str, NDArray[np.generic]], description: Description) -> Weights:
    """Return tensors in float64, after checks against ``description``: a dictionary by name.

    Raises :class:`InputError` if a tensor is missing, unknown, not of finite floats, or of the
    wrong shape. The largest magnitude in a tensor must be 0, or from 1e-30 to 1e30.
    """
    shapes = description.shapes()
    for name in tensors:
        if name not in shapes:
            raise InputError(f"Weight {name!r} is not one of the model's")
    weights = {}
    for name, shape in shapes.items():
        if name not in tensors:
            raise InputError(f"Weight {name!r} is missing")
        if tensors[name].shape != shape:
            raise InputError(
                f"Weight {name!r} must have the shape {list(shape)}, "
                f"not {list(tensors[name].shape)}"
            )
        check_floats(name, tensors[name])
        value = np.asarray(tensors[name], np.float64)
        if not np.isfinite(value).all():
            raise InputError(f"Weight {name!r} must hold finite numbers only")
        largest = float(np.abs(value).max(initial=0.0))
        if largest and not LEAST_WEIGHT <= largest <= MOST_WEIGHT:
            raise InputError(
                f"The largest number of weight {name!r} must be 0 or from {LEAST_WEIGHT:g} to "
                f"{MOST_WEIGHT:g}, not {largest:g}"
            )
        weights[name] = value
    return weights
