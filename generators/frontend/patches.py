"""Patches of images and frames of sounds: which elements of an input make up each of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def windows(
    shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    dilations: Sequence[int] = (),
) -> NDArray[np.int64]:
    """Return the places of a convolution's inputs, [*windows, channels, *kernel].

    ``shape`` is that of the input, channels first; places count its elements in their order, and
    -1 is what was padded, ``before`` and ``after`` each axis.
    """
    axes = len(kernel)
    before, after = (tuple(given) or (0,) * axes for given in (before, after))
    dilations = tuple(dilations) or (1,) * axes
    places = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    widths = [(0, 0), *zip(before, after, strict=True)]
    padded = np.pad(places, widths, constant_values=-1)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(
        padded, reach, axis=tuple(range(1, axes + 1))
    )  # [channels, *all places, *reach]
    every = [slice(None), *(slice(None, None, step) for step in (*strides, *dilations))]
    return np.moveaxis(seen[tuple(every)], 0, axes)
