"""Train a GPT-2-style decoder of characters, and write it as a Hugging Face folder.

Usage: python examples/train_text.py [FOLDER] [STEPS]

Trains on tales that ``examples/tales.py`` makes; needs the extra ``train``, and about ten minutes
on one core. ``config.json`` and ``model.safetensors`` are as transformers' GPT-2 has them;
``vocab.json`` gives each character its number.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from tales import tales
from torch import Tensor
from training import GPT2, MODELS, initial, learn, next_token_loss, write_characters, write_gpt2

from celosia.generators.frontend.text_description import TextDescription

CHARACTERS = "\n abcdefghijklmnopqrstuvwxyz.,"
MODEL = TextDescription(
    name="tales",
    vocabulary=len(CHARACTERS),
    positions=256,
    dim=32,
    layers=2,
    heads=4,
    ffn=128,
    activation="gelu_tanh",
    **GPT2,
)
STEPS, BATCH, RATE, DECAY = 3000, 16, 4e-3, 0.02


def train(steps: int) -> dict[str, Tensor]:
    """Return trained weights."""
    number = {character: index for index, character in enumerate(CHARACTERS)}
    data = np.array([number[character] for character in tales(6000, seed=1)])
    weights = initial(MODEL, seed=0)

    def loss() -> Tensor:
        # A quarter of the batches is twice as long and half as wide: all positions are trained.
        halves = 1 if torch.rand(()) < 0.25 else 2
        length = MODEL.positions // halves
        starts = torch.randint(0, len(data) - length, (BATCH * halves // 2,)).numpy()
        return next_token_loss(MODEL, weights, data[starts[:, None] + np.arange(length + 1)])

    learn(weights, steps, RATE, DECAY, loss)
    return weights


def main() -> None:
    """Train, and write the folder."""
    folder, steps, *_ = [*sys.argv[1:], *(MODELS / "tales", STEPS)[len(sys.argv) - 1 :]]
    write_gpt2(MODEL, train(int(steps)), Path(folder))
    write_characters(Path(folder), CHARACTERS)


if __name__ == "__main__":
    main()
