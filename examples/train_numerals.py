"""Train a small encoder-decoder that reads Roman numerals, and write it as celosia text reads it.

Usage: python examples/train_numerals.py [FOLDER]

Needs the extra ``train``; takes about two minutes on one core. The encoder takes a numeral from I
to MMMCMXCIX, the decoder answers with its digits. Three quarters of the 3,999 numerals are trained
on, 64 of them are in ``sources.txt`` to calibrate on, and ``answers.tsv`` has those held out in
no order, each with its number.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn import functional

from generators.frontend.text_description import TextDescription

FOLDER = Path(__file__).parents[1] / "generators" / "models" / "numerals"
CHARACTERS = "\n0123456789IVXLCDM"
MODEL = TextDescription(
    name="numerals",
    vocabulary=len(CHARACTERS),
    positions=6,
    dim=32,
    layers=2,
    heads=4,
    ffn=64,
    norm="layernorm",
    position="learned",
    gated=False,
    activation="relu",
    bias=True,
    source_layers=2,
    source_positions=16,
)
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
    found = ""
    for value, sign in _SIGNS:
        found += sign * (number // value)
        number %= value
    return found


def codes(texts: list[str], length: int) -> Tensor:
    """Return a line's end and the characters of each text, [texts, length], with more behind."""
    rows = [[CHARACTERS.index(character) for character in f"\n{text}"] for text in texts]
    return torch.tensor([row + [0] * (length - len(row)) for row in rows])


class Attention(nn.Module):
    """Attention behind a norm, whose keys and values may come from other rows."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(MODEL.dim)
        self.query, self.key = nn.Linear(MODEL.dim, MODEL.dim), nn.Linear(MODEL.dim, MODEL.dim)
        self.value, self.output = nn.Linear(MODEL.dim, MODEL.dim), nn.Linear(MODEL.dim, MODEL.dim)

    def forward(self, x: Tensor, mask: Tensor, other: Tensor | None = None) -> Tensor:
        """Return rows [batch, rows, dim]; ``mask`` tells which are seen, [..., rows, others]."""
        h = self.attention_norm(x)
        taken = h if other is None else other
        heads = (
            part.unflatten(-1, (MODEL.heads, -1)).transpose(1, 2)
            for part in (self.query(h), self.key(taken), self.value(taken))
        )
        context = functional.scaled_dot_product_attention(*heads, attn_mask=mask)
        return x + self.output(context.transpose(1, 2).flatten(2))


class Layer(Attention):
    """A block, of the decoder with ``cross`` attention."""

    def __init__(self, *, cross: bool) -> None:
        super().__init__()
        self.cross = Attention() if cross else None
        self.mlp_norm = nn.LayerNorm(MODEL.dim)
        self.up, self.down = nn.Linear(MODEL.dim, MODEL.ffn), nn.Linear(MODEL.ffn, MODEL.dim)

    def block(self, x: Tensor, mask: Tensor, source: Tensor | None, seen: Tensor) -> Tensor:
        """Return rows [batch, rows, dim]."""
        x = self(x, mask)
        if self.cross is not None:
            x = self.cross(x, seen, source)
        return x + self.down(functional.relu(self.up(self.mlp_norm(x))))


class Reader(nn.Module):
    """An encoder-decoder with the names of a description's tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Parameter(0.3 * torch.randn(MODEL.vocabulary, MODEL.dim))
        self.positions = nn.Parameter(0.1 * torch.randn(MODEL.positions, MODEL.dim))
        self.layers = nn.ModuleList(Layer(cross=True) for _ in range(MODEL.layers))
        self.final_norm = nn.LayerNorm(MODEL.dim)
        self.source = nn.Module()
        self.source.positions = nn.Parameter(0.1 * torch.randn(MODEL.source_positions, MODEL.dim))
        self.source.layers = nn.ModuleList(Layer(cross=False) for _ in range(MODEL.source_layers))
        self.source.final_norm = nn.LayerNorm(MODEL.dim)

    def forward(self, numerals: Tensor, lengths: Tensor, digits: Tensor) -> Tensor:
        """Return scores [batch, places, vocabulary] behind digits [batch, places]."""
        seen = torch.arange(numerals.shape[1]) < lengths[:, None]
        seen = seen[:, None, None]  # [batch, 1, 1, places]
        x = self.words[numerals] + self.source.positions
        for layer in self.source.layers:
            x = layer.block(x, seen, None, seen)
        source = self.source.final_norm(x)
        causal = torch.ones(digits.shape[1], digits.shape[1], dtype=torch.bool).tril()
        y = self.words[digits] + self.positions[: digits.shape[1]]
        for layer in self.layers:
            y = layer.block(y, causal, source, seen)
        return self.final_norm(y) @ self.words.T


def batch(numbers: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return numerals, their lengths, and digits between line's ends, of some numbers."""
    numerals = [numeral(number) for number in numbers]
    lengths = torch.tensor([len(one) + 1 for one in numerals])
    digits = codes([str(number) for number in numbers], MODEL.positions + 1)
    return codes(numerals, MODEL.source_positions), lengths, digits


def train(numbers: list[int]) -> Reader:
    """Return a model trained on some numbers."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model, rng = Reader(), np.random.default_rng(1)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for step in range(STEPS):
        numerals, lengths, digits = batch(rng.choice(numbers, BATCH).tolist())
        scores = model(numerals, lengths, digits[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), digits[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0:
            print(f"step {step} of {STEPS}: loss {loss.item():.4f}", file=sys.stderr, flush=True)
    return model.eval()


def right(model: Reader, numbers: list[int]) -> float:
    """Return the share of numbers whose digits are all the likeliest ones."""
    numerals, lengths, digits = batch(numbers)
    with torch.no_grad():
        found = model(numerals, lengths, digits[:, :-1]).argmax(dim=-1)
    return float((found == digits[:, 1:]).all(dim=1).float().mean())


def write(model: Reader, folder: Path, trained: list[int], held_out: list[int]) -> None:
    """Write the model in half precision, numerals to calibrate on, and those held out."""
    folder.mkdir(parents=True, exist_ok=True)
    state = model.state_dict().items()
    tensors = {name: value.numpy().astype(np.float16) for name, value in state}
    save_file(tensors, folder / "weights.safetensors")
    (folder / "decoder.toml").write_text(MODEL.to_toml(), encoding="utf-8")
    numbers = {character: index for index, character in enumerate(CHARACTERS)}
    (folder / "vocab.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
    lines = [numeral(number) for number in trained[:CALIBRATED]]
    (folder / "sources.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = [f"{numeral(number)}\t{number}" for number in held_out]
    (folder / "answers.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Train and write."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    order = (np.random.default_rng(0).permutation(LARGEST) + 1).tolist()
    trained, held_out = order[:TRAINED], order[TRAINED:]
    model = train(trained)
    print(f"{right(model, held_out):.1%} of {len(held_out)} numerals held out are read right")
    write(model, folder, trained, held_out)


if __name__ == "__main__":
    main()
