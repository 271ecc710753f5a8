"""Train a small GPT that sorts six digits, and write it as a folder that celosia run reads.

Usage: python examples/train_sorter.py FOLDER

Needs the extra ``train``; takes about a minute on two cores. A text is six digits from 0 to 2 and
then the same in order; the model has no token that begins a text and no tokenizer. Beside the model
are ``rows.npy``, 64 whole texts to calibrate on, and ``inputs.npy``, all 729 inputs.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from training import GPT2, initial, learn, next_token_loss, write_gpt2

from celosia.generators.frontend.text_description import TextDescription

DIGITS, LENGTH = 3, 6
MODEL = TextDescription(
    name="sorter",
    vocabulary=DIGITS,
    positions=2 * LENGTH - 1,
    dim=32,
    layers=2,
    heads=4,
    ffn=128,
    activation="gelu_tanh",
    **GPT2,
)
STEPS, BATCH, RATE = 700, 64, 3e-3


def train() -> dict[str, Tensor]:
    """Return trained weights."""
    weights = initial(MODEL, seed=1)

    def loss() -> Tensor:
        digits = torch.randint(0, DIGITS, (BATCH, LENGTH))
        texts = torch.cat([digits, digits.sort(dim=1).values], dim=1).numpy()
        return next_token_loss(MODEL, weights, texts, LENGTH - 1)

    learn(weights, STEPS, RATE, 0.01, loss)
    return weights


def main() -> None:
    """Train, and write the model with rows to calibrate on and all inputs."""
    folder = Path(sys.argv[1])
    write_gpt2(MODEL, train(), folder)
    inputs = np.array(list(itertools.product(range(DIGITS), repeat=LENGTH)))
    texts = np.concatenate([inputs, np.sort(inputs, axis=1)], axis=1)[:, :-1]
    chosen = np.random.default_rng(1).permutation(len(texts))[:64]
    np.save(folder / "rows.npy", texts[chosen])
    np.save(folder / "inputs.npy", inputs)


if __name__ == "__main__":
    main()
