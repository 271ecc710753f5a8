"""The digits images of scikit-learn, with one fixed split for training and test."""

import importlib.util
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from celosia.arch.packages import library, missing
from celosia.arch.support.cache import cached, digest

TEST_IMAGES = 500

_FILE = "digits.npz"
_SUBJECT = "The digits need"


@dataclass(frozen=True)
class Split:
    """Images [count, 8, 8] with pixels from 0 to 16, and their labels [count]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def load() -> tuple[Split, Split]:
    """Return the training images (1,297) and the test images (500), each as a :class:`Split`.

    The split never changes. Each digit is about equally frequent in the training and the test
    images. Raises :class:`InputError` if scikit-learn, which contains the images, is not installed.
    """
    images, labels = _all()
    order = np.argsort(labels, kind="stable")
    # The test images are picked from the images sorted by label, at equal intervals.
    place = np.arange(len(order)) * TEST_IMAGES // len(order)
    tested = np.diff(place, append=TEST_IMAGES) == 1
    test, train = np.sort(order[tested]), np.sort(order[~tested])
    return Split(images[train], labels[train]), Split(images[test], labels[test])


def _all() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return all images and labels; they are cached, because scikit-learn is slow to import."""
    if importlib.util.find_spec("sklearn") is None:
        raise missing("sklearn", _SUBJECT)

    def write(folder: Path) -> None:
        loaded = library("sklearn.datasets", _SUBJECT).load_digits()
        images = np.asarray(loaded.images, np.float32)
        np.savez(folder / _FILE, images=images, labels=np.asarray(loaded.target, np.int64))

    key = digest(_FILE, metadata.version("scikit-learn"))
    with np.load(cached("digits", key, write) / _FILE) as arrays:
        return arrays["images"], arrays["labels"]


def patches(images: NDArray[np.float32], size: int = 2) -> NDArray[np.float32]:
    """Return images [count, height, width] as tokens [count, patches, size * size].

    A token is a patch of ``size`` by ``size`` pixels. Patches and pixels are ordered row by row.
    """
    count, height, width = images.shape
    blocks = images.reshape(count, height // size, size, width // size, size)
    return blocks.transpose(0, 1, 3, 2, 4).reshape(count, -1, size * size)
