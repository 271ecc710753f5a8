"""The digits: a split that never changes."""

import importlib.util
import re
import subprocess
import sys

import numpy as np
import pytest

from celosia.arch.support.cache import ROOT
from celosia.generators.frontend import digits


def test_split() -> None:
    train, test = digits.load()
    assert train.images.shape == (1297, 8, 8)
    assert test.images.shape == (500, 8, 8)
    assert (test.images.min(), test.images.max()) == (0, 16)
    # Every digit has its share, and no image is in both parts.
    assert set(np.bincount(test.labels)) <= {48, 49, 50, 51}
    both = np.concatenate([train.images, test.images]).reshape(1797, 64)
    assert len(np.unique(both, axis=0)) == 1797
    again = digits.load()[1]
    np.testing.assert_array_equal(test.images, again.images)
    assert int((test.images.sum(axis=(1, 2)) * np.arange(500)).sum()) == 39_095_473


def test_another_process_does_not_import_scikit_learn() -> None:
    digits.load()
    program = (
        "import sys; from celosia.generators.frontend import digits\n"
        "assert len(digits.load()[1].labels) == 500\n"
        "assert 'sklearn' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_patches_go_row_by_row() -> None:
    image = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    tokens = digits.patches(image)
    assert tokens.shape == (1, 16, 4)
    np.testing.assert_array_equal(tokens[0, 0], [0, 1, 8, 9])
    np.testing.assert_array_equal(tokens[0, 5], [18, 19, 26, 27])


def test_without_scikit_learn(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = (
        "The digits need the package scikit-learn of the extra digits; install it with: "
        "pip install '.[digits]' in a checkout, or 'FILE.whl[digits]'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        digits.load()
