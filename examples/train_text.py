"""Train a GPT-2-style decoder of characters in plain NumPy, and write it as a Hugging Face folder.

Usage: python examples/train_text.py [STEPS]

Trains on tales that ``examples/tales.py`` makes; needs nothing but NumPy and safetensors, and
about ten minutes on one core. ``config.json`` and ``model.safetensors`` are as transformers' GPT-2
has them; ``vocab.json`` gives each character its number.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tales import tales

Floats = NDArray[np.float32]
Tensors = dict[str, Floats]

FOLDER = Path(__file__).parents[1] / "generators" / "models" / "tales"
CHARACTERS = "\n abcdefghijklmnopqrstuvwxyz.,"
DIM, LAYERS, HEADS, CONTEXT = 32, 2, 4, 256
EPSILON = 1e-5
STEPS, BATCH, LENGTH = 3000, 16, 128
RATE, WARMUP, DECAY = 4e-3, 100, 0.02
_GELU = np.float32(np.sqrt(2 / np.pi))


def initial(rng: np.random.Generator) -> Tensors:
    """Return the tensors of an untrained decoder by GPT-2's names; matrices are [k, n]."""

    def normal(*shape: int, scale: float) -> Floats:
        return rng.normal(0, scale, shape).astype(np.float32)

    ones, zeros = np.ones(DIM, np.float32), np.zeros
    found = {
        "wte.weight": normal(len(CHARACTERS), DIM, scale=0.1),
        "wpe.weight": normal(CONTEXT, DIM, scale=0.02),
        "ln_f.weight": ones.copy(),
        "ln_f.bias": zeros(DIM, np.float32),
    }
    for layer in range(LAYERS):
        prefix = f"h.{layer}"
        for norm in ("ln_1", "ln_2"):
            found[f"{prefix}.{norm}.weight"] = ones.copy()
            found[f"{prefix}.{norm}.bias"] = zeros(DIM, np.float32)
        for name, k, n in (
            ("attn.c_attn", DIM, 3 * DIM),
            ("attn.c_proj", DIM, DIM),
            ("mlp.c_fc", DIM, 4 * DIM),
            ("mlp.c_proj", 4 * DIM, DIM),
        ):
            found[f"{prefix}.{name}.weight"] = normal(k, n, scale=k**-0.5)
            found[f"{prefix}.{name}.bias"] = zeros(n, np.float32)
    return found


class Pass:
    """One forward pass that remembers what its backward pass needs."""

    def __init__(self, tensors: Tensors):
        self.tensors = tensors
        self.gradients = {name: np.zeros_like(value) for name, value in tensors.items()}
        self._kept: dict[str, tuple[Floats, ...]] = {}

    def loss(self, tokens: NDArray[np.int64]) -> float:
        """Return the mean loss of tokens [batch, length + 1], and fill in the gradients."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        length, words = inputs.shape[1], self.tensors["wte.weight"]
        x = words[inputs] + self.tensors["wpe.weight"][:length]
        for layer in range(LAYERS):
            x = x + self._attention(f"h.{layer}.attn", self._norm(f"h.{layer}.ln_1", x))
            x = x + self._mlp(f"h.{layer}.mlp", self._norm(f"h.{layer}.ln_2", x))
        final = self._norm("ln_f", x)
        p = _softmax(final @ words.T)
        rows, columns = np.indices(targets.shape)
        loss = -float(np.mean(np.log(p[rows, columns, targets] + 1e-9)))
        p[rows, columns, targets] -= 1
        d_logits = p / targets.size
        flat = d_logits.reshape(-1, len(words))
        self.gradients["wte.weight"] += flat.T @ final.reshape(-1, DIM)
        dx = self._norm_back("ln_f", d_logits @ words)
        for layer in reversed(range(LAYERS)):
            inner = self._mlp_back(f"h.{layer}.mlp", dx)
            dx = dx + self._norm_back(f"h.{layer}.ln_2", inner)
            inner = self._attention_back(f"h.{layer}.attn", dx)
            dx = dx + self._norm_back(f"h.{layer}.ln_1", inner)
        np.add.at(self.gradients["wte.weight"], inputs, dx)
        self.gradients["wpe.weight"][:length] += dx.sum(0)
        return loss

    def _linear(self, name: str, x: Floats) -> Floats:
        self._kept[name] = (x,)
        return x @ self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def _linear_back(self, name: str, dy: Floats) -> Floats:
        (x,) = self._kept[name]
        flat = dy.reshape(-1, dy.shape[-1])
        self.gradients[f"{name}.weight"] += x.reshape(len(flat), -1).T @ flat
        self.gradients[f"{name}.bias"] += flat.sum(0)
        return dy @ self.tensors[f"{name}.weight"].T

    def _norm(self, name: str, x: Floats) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        inverse = 1 / np.sqrt(np.mean(centred**2, -1, keepdims=True) + np.float32(EPSILON))
        y = centred * inverse
        self._kept[name] = (y, inverse)
        return y * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def _norm_back(self, name: str, dy: Floats) -> Floats:
        y, inverse = self._kept[name]
        self.gradients[f"{name}.weight"] += (dy * y).sum((0, 1))
        self.gradients[f"{name}.bias"] += dy.sum((0, 1))
        d = dy * self.tensors[f"{name}.weight"]
        return inverse * (d - d.mean(-1, keepdims=True) - y * (d * y).mean(-1, keepdims=True))

    def _attention(self, name: str, x: Floats) -> Floats:
        batch, length, _ = x.shape
        qkv = self._linear(f"{name}.c_attn", x).reshape(batch, length, 3, HEADS, -1)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)  # [batch, heads, length, head_dim] each
        scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
        p = _softmax(scores + np.triu(np.full((length, length), -1e9, np.float32), 1))
        self._kept[name] = (q, k, v, p)
        mixed = (p @ v).transpose(0, 2, 1, 3).reshape(batch, length, DIM)
        return self._linear(f"{name}.c_proj", mixed)

    def _attention_back(self, name: str, dy: Floats) -> Floats:
        q, k, v, p = self._kept[name]
        batch, length, _ = dy.shape
        mixed = self._linear_back(f"{name}.c_proj", dy)
        d = mixed.reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)
        dp = d @ v.swapaxes(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * np.float32(q.shape[-1] ** -0.5)
        parts = np.stack((ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ d))
        return self._linear_back(
            f"{name}.c_attn", parts.transpose(1, 3, 0, 2, 4).reshape(batch, length, 3 * DIM)
        )

    def _mlp(self, name: str, x: Floats) -> Floats:
        h = self._linear(f"{name}.c_fc", x)
        t = np.tanh(_GELU * (h + np.float32(0.044715) * h**3))
        self._kept[name] = (h, t)
        return self._linear(f"{name}.c_proj", 0.5 * h * (1 + t))

    def _mlp_back(self, name: str, dy: Floats) -> Floats:
        h, t = self._kept[name]
        slope = _GELU * (1 + np.float32(3 * 0.044715) * h**2) * (1 - t**2)
        d = self._linear_back(f"{name}.c_proj", dy) * (0.5 * (1 + t) + 0.5 * h * slope)
        return self._linear_back(f"{name}.c_fc", d)


def _softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def train(steps: int) -> Tensors:
    """Return trained tensors (AdamW, Loshchilov and Hutter 2019; cosine schedule)."""
    rng = np.random.default_rng(0)
    number = {character: index for index, character in enumerate(CHARACTERS)}
    data = np.array([number[character] for character in tales(6000, seed=1)])
    tensors = initial(rng)
    means = {name: np.zeros_like(value) for name, value in tensors.items()}
    squares = {name: np.zeros_like(value) for name, value in tensors.items()}
    smooth, began = 0.0, time.monotonic()
    for step in range(1, steps + 1):
        # Every fourth batch is twice as long and half as wide, so that all positions are trained.
        length, batch = (CONTEXT, BATCH // 2) if step % 4 == 0 else (LENGTH, BATCH)
        starts = rng.integers(0, len(data) - length, batch)
        current = Pass(tensors)
        loss = current.loss(data[starts[:, None] + np.arange(length + 1)])
        smooth = loss if step == 1 else 0.98 * smooth + 0.02 * loss
        rate = RATE * min(step / WARMUP, 0.5 * (1 + np.cos(np.pi * step / steps)) + 0.01)
        norm = np.sqrt(sum(float(np.sum(g**2)) for g in current.gradients.values()))
        for name, gradient in current.gradients.items():
            gradient = gradient * np.float32(min(1.0, 1.0 / norm))
            means[name] += np.float32(0.1) * (gradient - means[name])
            squares[name] += np.float32(0.01) * (gradient**2 - squares[name])
            mean, square = means[name] / (1 - 0.9**step), squares[name] / (1 - 0.99**step)
            change = mean / (np.sqrt(square) + 1e-8)
            if tensors[name].ndim == 2:
                change = change + DECAY * tensors[name]
            tensors[name] = (tensors[name] - rate * change).astype(np.float32)
        if step % 100 == 0:
            seconds = time.monotonic() - began
            print(f"step {step}: loss {smooth:.4f}, {seconds:.0f} s", flush=True)
    return tensors


def main() -> None:
    """Train, and write the folder."""
    tensors = train(int(sys.argv[1]) if sys.argv[1:] else STEPS)
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file(tensors, FOLDER / "model.safetensors")
    description = {
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": EPSILON,
        "n_embd": DIM,
        "n_head": HEADS,
        "n_layer": LAYERS,
        "n_positions": CONTEXT,
        "vocab_size": len(CHARACTERS),
        "tie_word_embeddings": True,
    }
    (FOLDER / "config.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    numbers = {character: index for index, character in enumerate(CHARACTERS)}
    (FOLDER / "vocab.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
