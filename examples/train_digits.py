"""Train the two digits models and write their float weights and descriptions.

Usage: python examples/train_digits.py [digits | digits-simplified]

Needs the extras ``train`` and ``digits``; takes about a minute per model on two cores. Training
sees the training split only, shifted by up to a pixel at random, and the last weights are kept
(no choice is made on the test split).
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from straight_through import Forward
from torch import Tensor
from torch.nn import functional
from training import MODELS, arrays, initial, learn

from celosia.generators.frontend import digits
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.graph.builder import network

EPOCHS = 260
BATCH = 64
PIXEL = 1 / 16

STANDARD = ModelDescription(
    name="digits", tokens=16, features=4, dim=32, layers=2, heads=4, ffn=64, classes=10
)
SIMPLIFIED = STANDARD.replace(
    name="digits-simplified",
    norm="none",
    final_norm=False,
    skip=False,
    parallel=True,
    shaped=True,
    values=False,
    output=False,
)


def augment(images: Tensor) -> Tensor:
    """Return images [count, 8, 8] shifted by -1, 0 or 1 pixels along both axes, with zeros."""
    padded = functional.pad(images, (1, 1, 1, 1))
    place = torch.randint(0, 3, (2, len(images), 1))
    keep = torch.rand(len(images)) < 0.5
    place[:, keep] = 1
    row = (torch.arange(8) + place[0])[:, :, None]
    column = (torch.arange(8) + place[1])[:, None, :]
    return padded[torch.arange(len(images))[:, None, None], row, column]


def train(
    model: ModelDescription,
    weights: dict[str, Tensor] | None = None,
    used: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> tuple[dict[str, Tensor], float]:
    """Return trained weights and their accuracy on the test split.

    Training begins with ``weights``, if given. The model multiplies by ``used(weights)``, which is
    called at each step.
    """
    split, test = digits.load()
    images, labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
    weights, graph = weights or initial(model, seed=0), network(model)

    def logits(some: Tensor) -> Tensor:
        return Forward(graph, used(weights), PIXEL * digits.patches(some.numpy())).output[:, 0]

    def loss() -> Tensor:
        batch = torch.randint(0, len(images), (BATCH,))
        scores = logits(augment(images[batch]))
        return functional.cross_entropy(scores, labels[batch], label_smoothing=0.05)

    learn(weights, EPOCHS * (len(images) // BATCH), 3e-3, 0.05, loss)
    with torch.no_grad():
        chosen = logits(torch.from_numpy(test.images)).argmax(1)
    return used(weights), float((chosen == torch.from_numpy(test.labels)).float().mean())


def write(model: ModelDescription, weights: dict[str, np.ndarray], folder: Path) -> None:
    """Write a model that takes pixels as they are, from 0 to 16."""
    scaled = weights["embed.weight"] * weights["embed.weight"].dtype.type(PIXEL)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({**weights, "embed.weight": scaled}, folder / "weights.safetensors")
    (folder / "model.toml").write_text(model.to_toml(), encoding="utf-8")


def main() -> None:
    """Train the models named, or both."""
    for model in (STANDARD, SIMPLIFIED):
        if sys.argv[1:] and model.name not in sys.argv[1:]:
            continue
        began = time.monotonic()
        weights, accuracy = train(model)
        write(model, arrays(weights), MODELS / model.name)
        seconds = time.monotonic() - began
        print(f"{model.name}: test accuracy {accuracy:.4f}, {seconds:.0f} s")


if __name__ == "__main__":
    main()
