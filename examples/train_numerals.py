"""Train a small encoder-decoder that reads Roman numerals, and write it as celosia run reads it.

Usage: python examples/train_numerals.py [FOLDER]

Needs the extra ``train``; takes about two minutes on one core. The encoder reads a numeral from I
to MMMCMXCIX, the decoder answers with its digits. Training uses three quarters of the 3,999
numerals; 64 of them are in ``sources.txt`` to calibrate on. ``answers.tsv`` has the others in
random order, each with its number.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from straight_through import Forward
from torch import Tensor
from torch.nn import functional
from training import GPT2, MODELS, arrays, initial, learn, write_characters

from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.graph.builder import network

CHARACTERS = "\n0123456789IVXLCDM"
MODEL = TextDescription(
    name="numerals",
    vocabulary=len(CHARACTERS),
    positions=6,
    dim=32,
    layers=2,
    heads=4,
    ffn=64,
    activation="relu",
    **GPT2,
    source_layers=2,
    source_positions=16,
)
GRAPH = network(MODEL)
LARGEST, TRAINED, CALIBRATED = 3999, 3000, 64
STEPS, BATCH, RATE = 1500, 256, 4e-3
_SIGNS = tuple(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    )
)


def numeral(number: int) -> str:
    """Return a number from 1 to LARGEST in Roman signs."""
    text = ""
    for value, sign in _SIGNS:
        text += sign * (number // value)
        number %= value
    return text


def codes(texts: list[str], length: int) -> np.ndarray:
    """Return a line's end and the characters of each text, padded, [texts, length]."""
    rows = [[CHARACTERS.index(character) for character in f"\n{text}"] for text in texts]
    return np.array([row + [0] * (length - len(row)) for row in rows])


def scores(weights: dict[str, Tensor], numbers: list[int]) -> tuple[Tensor, Tensor]:
    """Return scores [batch, places, vocabulary] of the digits of some numbers, and the digits."""
    numerals = [numeral(number) for number in numbers]
    seen = np.arange(MODEL.source_positions) <= np.array([[len(letters)] for letters in numerals])
    tokens = codes([str(number) for number in numbers], MODEL.positions + 1)
    source = GRAPH.source, weights, codes(numerals, MODEL.source_positions)
    encoded = Forward(*source, seen=torch.from_numpy(seen))
    output = Forward(GRAPH, weights, tokens[:, :-1], source=encoded).output
    return output, torch.from_numpy(tokens[:, 1:])


def train(numbers: list[int]) -> dict[str, Tensor]:
    """Return weights trained on some numbers."""
    weights, rng = initial(MODEL, seed=1), np.random.default_rng(1)

    def loss() -> Tensor:
        logits, wanted = scores(weights, rng.choice(numbers, BATCH).tolist())
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    learn(weights, STEPS, RATE, 0.02, loss)
    return weights


def right(weights: dict[str, Tensor], numbers: list[int]) -> float:
    """Return the share of numbers whose digits are all the likeliest ones."""
    with torch.no_grad():
        logits, wanted = scores(weights, numbers)
    return float((logits.argmax(dim=-1) == wanted).all(dim=1).float().mean())


def write(
    weights: dict[str, Tensor], folder: Path, trained: list[int], held_out: list[int]
) -> None:
    """Write the model in half precision, numerals to calibrate on, and those held out."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.astype(np.float16) for name, value in arrays(weights).items()}
    save_file(tensors, folder / "weights.safetensors")
    (folder / "decoder.toml").write_text(MODEL.to_toml(), encoding="utf-8")
    write_characters(folder, CHARACTERS)
    lines = [numeral(number) for number in trained[:CALIBRATED]]
    (folder / "sources.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = [f"{numeral(number)}\t{number}" for number in held_out]
    (folder / "answers.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Train and write."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else MODELS / "numerals"
    order = (np.random.default_rng(0).permutation(LARGEST) + 1).tolist()
    trained, held_out = order[:TRAINED], order[TRAINED:]
    weights = train(trained)
    print(f"{right(weights, held_out):.1%} of {len(held_out)} numerals held out are read right")
    write(weights, folder, trained, held_out)


if __name__ == "__main__":
    main()
