"""Train the two digits models and write their float weights and descriptions.

Usage: python examples/train_digits.py [digits | digits-simplified]

Needs the extras ``train`` and ``digits``; takes about a minute per model on two cores. Training
sees the training split only, shifted by up to a pixel at random, and the last weights are kept
(no choice is made on the test split).
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor
from torch.nn import functional

from generators.frontend import digits
from generators.frontend.description import ModelDescription

MODELS = Path(__file__).parents[1] / "generators" / "models"
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


def initial_weights(model: ModelDescription) -> dict[str, Tensor]:
    """Return weights to start from: queries at zero, so that attention starts uniform."""
    weights = {}
    for name, shape in model.shapes().items():
        if name.endswith((".query.weight", ".bias")):
            value = torch.zeros(shape)
        elif len(shape) == 2:
            value = torch.randn(shape) / shape[1] ** 0.5
        else:
            value = torch.ones(shape)
        weights[name] = value
    if "positions" in weights:
        weights["positions"] *= 0.3
    return {name: value.requires_grad_() for name, value in weights.items()}


def forward(model: ModelDescription, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the logits [batch, classes] of tokens [batch, tokens, features]."""

    def linear(name: str, value: Tensor) -> Tensor:
        return functional.linear(value, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str, value: Tensor) -> Tensor:
        if model.norm == "none":
            return value
        scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return functional.layer_norm(value, (model.dim,), scale, shift, model.epsilon)

    def heads(value: Tensor) -> Tensor:
        return value.unflatten(-1, (model.heads, model.head_dim)).transpose(1, 2)

    def attention(prefix: str, value: Tensor) -> Tensor:
        query, key = heads(linear(f"{prefix}.query", value)), heads(linear(f"{prefix}.key", value))
        values = heads(linear(f"{prefix}.value", value) if model.values else value)
        matrix = torch.softmax(query @ key.transpose(-1, -2) * model.head_dim**-0.5, -1)
        if model.shaped:
            alpha, beta, gamma = (
                weights[f"{prefix}.{name}"][:, None, None] for name in ("alpha", "beta", "gamma")
            )
            identity = torch.eye(model.sequence)
            matrix = alpha * identity + beta * matrix - gamma / model.sequence
        mixed = (matrix @ values).transpose(1, 2).flatten(2)
        return linear(f"{prefix}.output", mixed) if model.output else mixed

    def mlp(prefix: str, value: Tensor) -> Tensor:
        return linear(f"{prefix}.down", functional.gelu(linear(f"{prefix}.up", value)))

    x = linear("embed", x) + weights["positions"]
    for layer in range(model.layers):
        prefix = f"layers.{layer}"
        if model.parallel:
            value = norm(f"{prefix}.norm", x)
            mixed = weights[f"{prefix}.attention_gain"] * attention(prefix, value)
            hidden = weights[f"{prefix}.mlp_gain"] * mlp(prefix, value)
            x = mixed + hidden + (x if model.skip else 0)
        else:
            x = x + attention(prefix, norm(f"{prefix}.attention_norm", x))
            x = x + mlp(prefix, norm(f"{prefix}.mlp_norm", x))
    if model.final_norm:
        x = norm("final_norm", x)
    return linear("head", x.mean(1))


def augment(images: Tensor) -> Tensor:
    """Return images [count, 8, 8] each shifted by -1, 0 or 1 pixels both ways, zeros shifted in."""
    padded = functional.pad(images, (1, 1, 1, 1))
    place = torch.randint(0, 3, (2, len(images), 1))
    keep = torch.rand(len(images)) < 0.5
    place[:, keep] = 1
    row = (torch.arange(8) + place[0])[:, :, None]
    column = (torch.arange(8) + place[1])[:, None, :]
    return padded[torch.arange(len(images))[:, None, None], row, column]


def tokens(images: Tensor) -> Tensor:
    """Return tokens [count, 16, 4], with pixels from 0 to 1."""
    return torch.from_numpy(digits.patches(images.numpy())) * PIXEL


def train(model: ModelDescription) -> tuple[dict[str, Tensor], float]:
    """Return trained weights and their accuracy on the test split."""
    torch.manual_seed(0)
    split, test = digits.load()
    images, labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
    weights = initial_weights(model)
    decayed = [value for value in weights.values() if value.ndim == 2]
    others = [value for value in weights.values() if value.ndim != 2]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(EPOCHS):
        order = torch.randperm(len(images))
        for batch in order[: len(order) // BATCH * BATCH].split(BATCH):
            logits = forward(model, weights, tokens(augment(images[batch])))
            loss = functional.cross_entropy(logits, labels[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        logits = forward(model, weights, tokens(torch.from_numpy(test.images)))
    accuracy = float((logits.argmax(1) == torch.from_numpy(test.labels)).float().mean())
    return weights, accuracy


def main() -> None:
    """Train the models named, or both."""
    torch.set_num_threads(1)
    for model in (STANDARD, SIMPLIFIED):
        if sys.argv[1:] and model.name not in sys.argv[1:]:
            continue
        began = time.monotonic()
        weights, accuracy = train(model)
        arrays = {name: value.detach().numpy() for name, value in weights.items()}
        # The committed model takes pixels as they are, from 0 to 16.
        arrays["embed.weight"] = arrays["embed.weight"] * np.float32(PIXEL)
        folder = MODELS / model.name
        folder.mkdir(parents=True, exist_ok=True)
        save_file(arrays, folder / "weights.safetensors")
        (folder / "model.toml").write_text(model.to_toml(), encoding="utf-8")
        seconds = time.monotonic() - began
        print(f"{model.name}: test accuracy {accuracy:.4f}, {seconds:.0f} s")


if __name__ == "__main__":
    main()
