"""Training of small models by their graphs: first weights, steps, and GPT-2's folder."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from straight_through import Forward
from torch import Tensor
from torch.nn import functional

from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.graph.builder import network
from celosia.generators.graph.network import Description

MODELS = Path(__file__).parents[1] / "generators" / "models"
GPT2 = {"norm": "layernorm", "position": "learned", "gated": False, "bias": True}
"""Fields of descriptions of models like GPT-2."""
TOLD = 250
"""Number of steps between two lines about the loss."""
_GPT2 = {
    "words": "wte",
    "positions": "wpe",
    "final_norm": "ln_f",
    "attention_norm": "ln_1",
    "mlp_norm": "ln_2",
    "output": "attn.c_proj",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}


def initial(model: Description, seed: int) -> dict[str, Tensor]:
    """Return weights to start from: queries at zero, so that attention starts uniform."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    weights = {}
    for name, shape in model.shapes().items():
        if name.endswith((".query.weight", ".bias")):
            value = torch.zeros(shape)
        elif len(shape) == 2:
            value = torch.randn(shape) / shape[1] ** 0.5
        else:
            value = torch.ones(shape)
        weights[name] = (0.3 * value if name.endswith("positions") else value).requires_grad_()
    return weights


def learn(
    weights: dict[str, Tensor], steps: int, rate: float, decay: float, loss: Callable[[], Tensor]
) -> None:
    """Train for ``steps`` steps (AdamW, Loshchilov and Hutter 2019), each with a new ``loss``."""
    decayed = [value for value in weights.values() if value.ndim == 2]
    others = [value for value in weights.values() if value.ndim != 2]
    groups = [{"params": decayed, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for step in range(steps):
        lost = loss()
        optimizer.zero_grad()
        lost.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        schedule.step()
        if step % TOLD == 0:
            print(f"step {step} of {steps}: loss {lost.item():.4f}", file=sys.stderr, flush=True)


def next_token_loss(
    model: TextDescription, weights: dict[str, Tensor], texts: np.ndarray, first: int = 0
) -> Tensor:
    """Return the mean loss of tokens [batch, length] after ``first`` others each."""
    scores = Forward(network(model), weights, texts[:, :-1]).output[:, first:]
    wanted = torch.from_numpy(texts[:, first + 1 :])
    return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())


def arrays(weights: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Return weights as arrays for writing."""
    return {name: value.detach().numpy() for name, value in weights.items()}


def write_gpt2(model: TextDescription, weights: dict[str, Tensor], folder: Path) -> None:
    """Write a decoder as transformers' GPT-2 has it, matrices as [inputs, outputs]."""
    ours = arrays(weights)
    tensors = {}
    for name, value in ours.items():
        prefix, kind, part = name.rsplit(".", 2) if name.count(".") > 1 else ("", name, "")
        if not prefix:
            base, _, part = name.partition(".")
            tensors[f"{_GPT2[base]}.{part or 'weight'}"] = value
            continue
        if kind in ("key", "value"):
            continue
        if kind == "query":
            value = np.concatenate(
                [ours[f"{prefix}.{projection}.{part}"] for projection in (kind, "key", "value")]
            )
        theirs = f"{prefix.replace('layers', 'h')}.{_GPT2.get(kind, 'attn.c_attn')}.{part}"
        tensors[theirs] = np.ascontiguousarray(value.T)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": model.epsilon,
        "n_embd": model.dim,
        "n_head": model.heads,
        "n_layer": model.layers,
        "n_positions": model.positions,
        "vocab_size": model.vocabulary,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_characters(folder: Path, characters: str) -> None:
    """Write the number of each character, the tokens of a model."""
    numbers = {character: index for index, character in enumerate(characters)}
    (folder / "vocab.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
