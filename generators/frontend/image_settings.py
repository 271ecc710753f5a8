"""Resizing and normalization of images by the settings in a model's preprocessor_config.json.

If the settings name an image processor, or the folder has a config.json, the package
``transformers`` processes images instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.packages import library

_BILINEAR = 2
"""Pillow's number of the usual kind of interpolation."""
_Positive = Annotated[float, Meta(gt=0, le=1e12)]
_Finite = Annotated[float, Meta(ge=-1e12, le=1e12)]
_Side = Annotated[int, Meta(ge=1)]
_KINDS: dict[str, tuple[Any, str]] = {
    "do_resize": (bool, "true or false"),
    "size": (_Side | dict[str, _Side], "that of the model, {height} by {width}"),
    "resample": (Annotated[int, Meta(ge=0, le=5)], "an integer from 0 to 5"),
    "do_rescale": (bool, "true or false"),
    "rescale_factor": (_Positive, "a positive number"),
    "do_normalize": (bool, "true or false"),
    "image_mean": (_Finite | list[_Finite], "a number, or one for each of {channels} channels"),
    "image_std": (
        _Positive | list[_Positive],
        "a positive number, or one for each of {channels} channels",
    ),
}
"""The type of each setting, and its description in words."""
IMAGE_SETTINGS = tuple(_KINDS)
"""Names of the settings."""
_MOMENTS = ("image_mean", "image_std")


@dataclass(frozen=True)
class ImageSettings:
    """Preprocessing from an image to a model's input; a step is omitted if its field is None."""

    shape: tuple[int, ...]
    """Channels, height and width of the model's input."""
    resample: int | None
    """Pillow's number of the interpolation, for images of another size than the input's."""
    factor: float | None
    """Factor of all values, which are from 0 to 255."""
    moments: NDArray[np.float64] | None
    """Mean and standard deviation of each channel, [2, channels]."""

    def __call__(self, image: Any) -> NDArray[np.float64]:
        """Return the values of an image of the package Pillow, [channels, height, width]."""
        if self.resample is not None and (image.height, image.width) != self.shape[1:]:
            method = library("PIL.Image", "Images need", "pillow").Resampling(self.resample)
            image = image.resize((self.shape[2], self.shape[1]), method)
        values = np.asarray(image, np.float64).reshape(image.height, image.width, -1)
        if self.factor is not None:
            values = values * self.factor
        if self.moments is not None:
            mean, deviation = self.moments
            values = (values - mean) / deviation
        return np.ascontiguousarray(values.transpose(2, 0, 1))


def read_image_settings(
    how: Mapping[str, Any], shape: tuple[int, ...], path: Path
) -> ImageSettings:
    """Return the image preprocessing that the settings in a preprocessor_config.json describe.

    ``how`` is a dictionary of the settings. ``shape`` is the model's input shape (channels, height,
    width). ``path`` is only named in error messages.
    Raises :class:`InputError` if a setting is invalid or missing.
    """
    channels, height, width = shape
    for name, value in how.items():
        kind, words = _KINDS[name]
        try:
            msgspec.convert(value, kind)
            fits = True
        except msgspec.ValidationError:
            fits = False
        if name == "size":
            fits = fits and value in (height if height == width else {}, _sides(height, width))
        elif isinstance(value, list):
            fits = fits and len(value) == channels
        if not fits:
            wanted = words.format(channels=channels, height=height, width=width)
            raise InputError(f"Setting {name!r} in {path} must be {wanted}, not {value!r}")
    moments = None
    if how.get("do_normalize", any(name in how for name in _MOMENTS)):
        missing = next((name for name in _MOMENTS if name not in how), None)
        if missing:
            raise InputError(f"File {path} must give {missing!r}, as it normalizes")
        rows = [np.broadcast_to(np.asarray(how[name], np.float64), channels) for name in _MOMENTS]
        moments = np.array(rows)
    return ImageSettings(
        shape,
        how.get("resample", _BILINEAR) if how.get("do_resize", True) else None,
        how.get("rescale_factor", 1 / 255) if how.get("do_rescale", True) else None,
        moments,
    )


def _sides(height: int, width: int) -> dict[str, int]:
    return {"height": height, "width": width}
