"""Train a model of the digits, set three quarters of its weights to zero by tiles, and write it.

Usage: python examples/train_blocks.py [FOLDER]

Needs the extras ``train`` and ``digits``; takes about two minutes on one core. Tiles are those of
the array of ``small``. The tiles of each matrix with the smallest norms become zero, a growing
share of them (Zhu and Gupta 2017), while the model learns on.
"""

import sys
from pathlib import Path

import numpy as np
from torch import Tensor
from train_digits import BATCH, EPOCHS, STANDARD, train, write
from training import MODELS, arrays

from celosia.arch.presets import PRESETS
from celosia.generators.frontend import digits

MODEL = STANDARD.replace(name="digits-blocks", dim=64, layers=1, ffn=192, activation="relu")
ZEROS = 0.75
"""Share of the tiles of each matrix that become zero."""
LEAST_WEIGHTS = 1000
"""Fewest weights of a matrix that gets zeros."""
EVERY = 20
"""Steps between two choices of tiles."""


class Pruning:
    """Zeros in the tiles of weights with the smallest norms."""

    def __init__(self, steps: int):
        self.steps, self.step = steps, 0
        self.masks: dict[str, Tensor] = {}

    def __call__(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return weights with zeros, whose share grows in the first half of the steps."""
        if self.step % EVERY == 0 and self.step <= self.steps // 2 + EVERY:
            share = ZEROS * (1 - max(0.0, 1 - 2 * self.step / self.steps) ** 3)
            names = (name for name in weights if name.startswith("layers."))
            self.masks = {
                name: tile_mask(weights[name].detach(), share)
                for name in names
                if weights[name].ndim == 2 and weights[name].numel() >= LEAST_WEIGHTS
            }
        self.step += 1
        return {name: value * self.masks.get(name, 1) for name, value in weights.items()}


def tile_mask(weight: Tensor, share: float) -> Tensor:
    """Return 0 for a share of the tiles of a weight [n, k], those with the smallest norms."""
    array = PRESETS["small"].array
    tiles = weight.unflatten(1, (-1, array.rows)).unflatten(0, (-1, array.cols))
    norms = tiles.square().sum(dim=(1, 3))
    order = norms.flatten().argsort().argsort().reshape(norms.shape)
    kept = (order >= round(share * norms.numel())).float()
    return kept.repeat_interleave(array.cols, 0).repeat_interleave(array.rows, 1)


def main() -> None:
    """Train, and write the folder."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else MODELS / MODEL.name
    weights, dense = train(MODEL)
    steps = EPOCHS * (len(digits.load()[0].images) // BATCH)
    pruned, accuracy = train(MODEL, weights, Pruning(steps))
    write(MODEL, {name: value.astype(np.float16) for name, value in arrays(pruned).items()}, folder)
    print(f"test accuracy {dense:.4f} dense, {accuracy:.4f} with zeros")


if __name__ == "__main__":
    main()
