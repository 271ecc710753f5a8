"""Train a small GPT that sorts six digits, and write it as a folder that celosia text reads.

Usage: python examples/train_sorter.py FOLDER

Needs the extra ``train``; takes about a minute on two cores. A text is six digits from 0 to 2 and
then the same in order; the model has no token that begins a text and no tokenizer. Beside the model
are ``rows.npy``, 64 whole texts to calibrate on, and ``inputs.npy``, all 729 inputs.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn import functional

DIGITS, LENGTH, DIM, HEADS, LAYERS = 3, 6, 32, 4, 2
PLACES = 2 * LENGTH - 1
STEPS, BATCH, RATE = 700, 64, 3e-3


class Layer(nn.Module):
    """A block of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.c_attn, self.c_proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.c_fc, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        """Return rows [batch, places, dim]."""
        split = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).chunk(3, dim=-1)
        )
        context = functional.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.c_proj(context.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Sorter(nn.Module):
    """A decoder of digits."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(DIGITS, DIM), nn.Embedding(PLACES, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(DIM)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [batch, places, digits] of numbers [batch, places]."""
        y = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for layer in self.layers:
            y = layer(y)
        return self.ln_f(y) @ self.wte.weight.T


def train() -> Sorter:
    """Return a trained model."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Sorter()
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for step in range(STEPS):
        given = torch.randint(0, DIGITS, (BATCH, LENGTH))
        text = torch.cat([given, given.sort(dim=1).values], dim=1)
        scores = model(text[:, :-1])[:, LENGTH - 1 :]
        loss = functional.cross_entropy(scores.flatten(0, 1), text[:, LENGTH:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0:
            print(f"step {step} of {STEPS}: loss {loss.item():.4f}", file=sys.stderr, flush=True)
    return model.eval()


def write(model: Sorter, folder: Path) -> None:
    """Write the model as transformers would, with rows to calibrate on and all inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"c_attn": "attn.c_attn", "c_proj": "attn.c_proj", "c_fc": "mlp.c_fc"}
    names |= {"down": "mlp.c_proj"}
    tensors = {}
    for name, value in model.state_dict().items():
        array = value.numpy()
        if name.startswith("layers."):
            _, number, part, kind = name.split(".")
            name = f"h.{number}.{names.get(part, part)}.{kind}"
            array = array.T if array.ndim == 2 else array
        tensors[f"transformer.{name}"] = np.ascontiguousarray(array)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": DIGITS,
        "n_embd": DIM,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": PLACES,
        "activation_function": "gelu_new",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    inputs = np.array(list(itertools.product(range(DIGITS), repeat=LENGTH)))
    texts = np.concatenate([inputs, np.sort(inputs, axis=1)], axis=1)[:, :-1]
    chosen = np.random.default_rng(1).permutation(len(texts))[:64]
    np.save(folder / "rows.npy", texts[chosen])
    np.save(folder / "inputs.npy", inputs)


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    write(train(), folder)


if __name__ == "__main__":
    main()
