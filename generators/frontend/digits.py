"""The digits images of scikit-learn, with one fixed split for training and test."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from celosia.arch.packages import library

TEST_IMAGES = 500


@dataclass(frozen=True)
class Split:
    """Images [count, 8, 8] with pixels from 0 to 16, and their labels [count]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def load() -> tuple[Split, Split]:
    """Return two :class:`Split`: 1,297 images for training and calibration, and 500 test images.

    The images are sorted by label, and the test images are picked from the sorted images at equal
    intervals. So the split needs no random numbers and never changes. Each digit is about equally
    frequent in the training images and in the test images.

    Raises :class:`InputError` if scikit-learn, which contains the images, is not installed.
    """
    digits = library("sklearn.datasets", "The digits need", "scikit-learn").load_digits()
    images = np.asarray(digits.images, np.float32)
    labels = np.asarray(digits.target, np.int64)
    order = np.argsort(labels, kind="stable")
    place = np.arange(len(order)) * TEST_IMAGES // len(order)
    tested = np.diff(place, append=TEST_IMAGES) == 1
    test, train = np.sort(order[tested]), np.sort(order[~tested])
    return Split(images[train], labels[train]), Split(images[test], labels[test])


def patches(images: NDArray[np.float32], size: int = 2) -> NDArray[np.float32]:
    """Return images [count, height, width] as tokens [count, patches, size * size].

    A token is a patch of ``size`` by ``size`` pixels. Patches and pixels are ordered row by row.
    """
    count, height, width = images.shape
    blocks = images.reshape(count, height // size, size, width // size, size)
    return blocks.transpose(0, 1, 3, 2, 4).reshape(count, -1, size * size)
