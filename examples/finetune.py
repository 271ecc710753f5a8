"""Fine-tune a model for weights of few bits, or with zeros, and write it as a model of its own.

Usage: python examples/finetune.py MODEL FOLDER [--weights FORMAT | --zeros SHARE] [--steps N]
    [--exact N] [--tokenizer FILE]

MODEL is one of the digits' models or a language model, FOLDER where the new one goes. Needs the
extra ``train``. Weights are codes in the forward pass and learn as real numbers; so do the codes'
steps. In the last steps, ``--exact`` of them, the forward pass is the integer golden model's, with
activations in INT8. What is written are the codes, which the quantizer keeps as they are.

Digits learn from the training split. A language model learns from texts that it makes up itself,
what it thinks of each next token (Liu et al. 2023, "LLM-QAT"). ``--zeros`` makes the smallest
weights of each matrix zeros, a growing share of them (Zhu and Gupta 2017).
"""

import argparse
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from straight_through import Forward, codes, matrices
from torch import Tensor
from torch.nn import functional
from train_digits import MODELS, augment

from arch.formats import FORMATS
from arch.presets import PRESETS
from generators.frontend import digits
from generators.frontend.weights import DESCRIPTION_FILE, WEIGHTS_FILE, Weights
from generators.graph import IntegerGraph
from generators.network import network
from generators.quantize.calibrate import calibrate
from generators.quantize.error_steps import ErrorSteps
from generators.quantize.options import INT8, Quantization
from generators.quantize.quantize import quantize_calibrated, quantize_stepped
from generators.quantize.stored import choose
from generators.quantize.texts import given_texts, sample_texts
from generators.sources import load_source
from generators.text_sources import CHARACTERS_FILE, DECODER_FILE, is_text, load_text

RATE, STEP_RATE = 2e-3, 4e-3
"""Learning rates of weights, and of the logarithms of their steps."""
RANGES_EVERY = 25
"""Exact steps between calibrations."""
PRUNED = 0.6
"""Share of the steps by which all zeros are there."""
LEAST_WEIGHTS = 1000
"""Weights from which on a matrix gets zeros."""


class Images:
    """The digits' training split."""

    def __init__(self, source: str, options: Quantization):
        found = load_source(source)
        self.model, self.weights, self.options = found.description, found.weights, options
        split, _ = digits.load()
        self.images, self.labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
        self.size = 64

    def batch(self) -> tuple[np.ndarray, Tensor]:
        """Return inputs [batch, tokens, features], and labels."""
        picked = torch.randint(0, len(self.images), (self.size,))
        return digits.patches(augment(self.images[picked]).numpy()), self.labels[picked]

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of outputs [batch, 1, classes]."""
        return functional.cross_entropy(output[:, 0], labels, label_smoothing=0.05)

    def calibrate(self, weights: Weights) -> None:
        """Look at the ranges of all tensors."""
        inputs = digits.patches(self.images[:256].numpy())
        self.ranges = calibrate(self.model, weights, inputs)

    def integers(self, weights: Weights) -> IntegerGraph:
        """Return the model in integers."""
        config = PRESETS["small"]
        return quantize_calibrated(self.model, weights, self.ranges, config, self.options)


class Texts:
    """Texts that a language model makes up, and its scores of all next tokens."""

    def __init__(self, source: str, tokenizer: Path | None, options: Quantization, length: int):
        found = load_text(source, tokenizer)
        model, weights = found.description, dict(found.weights)
        samples = sample_texts(
            model, weights, found.tokenizer.begin, count=128, length=length, seed=7
        )
        scores = samples.tensors["logits"].reshape(*samples.tokens.shape, -1)
        self.tokens, self.scores = samples.tokens, torch.tensor(scores, dtype=torch.float32)
        if model.tied:
            # Vectors that are looked up stay in INT8.
            model, weights["head.weight"] = model.replace(tied=False), weights["words"]
        self.model, self.weights, self.options = model, weights, options
        self.size = 4

    def batch(self) -> tuple[np.ndarray, Tensor]:
        """Return tokens [batch, length], and the scores of those behind them."""
        picked = torch.randint(0, len(self.tokens), (self.size,))
        return self.tokens[picked.numpy()], self.scores[picked]

    def loss(self, output: Tensor, scores: Tensor) -> Tensor:
        """Return the divergence of outputs [batch, length, vocabulary] from scores."""
        wanted = scores.log_softmax(-1).flatten(0, 1)
        found = output.log_softmax(-1).flatten(0, 1)
        return functional.kl_div(found, wanted, log_target=True, reduction="batchmean")

    def calibrate(self, weights: Weights) -> None:
        """Look at the values of all tensors."""
        texts = [list(map(int, one)) for one in self.tokens[:4]]
        samples = given_texts(self.model, weights, texts, self.tokens.shape[1])
        balance = 0.0 if self.options.weights in FORMATS else None
        self.options = replace(self.options, balance=balance)
        self.steps = ErrorSteps(self.model, weights, samples, self.options)

    def integers(self, weights: Weights) -> IntegerGraph:
        """Return the model in integers."""
        return quantize_stepped(weights, self.steps, self.options)


class Tuning:
    """Weights that learn."""

    def __init__(self, task: Images | Texts, zeros: float):
        self.task, self.zeros, self.graph = task, zeros, network(task.model)
        self.form = FORMATS.get(task.options.weights)
        self.free = {
            name: torch.tensor(value, dtype=torch.float32, requires_grad=True)
            for name, value in task.weights.items()
        }
        self.names = matrices(self.graph)
        self.steps: dict[str, Tensor] = {}
        self.masks: dict[str, Tensor] = {}
        if self.form is not None:
            for name in self.names:
                _, _, steps = choose(task.weights[name], self.form, 0, None)
                found = torch.tensor(np.log(steps), dtype=torch.float32)[:, None]
                self.steps[name] = found.requires_grad_()

    def prune(self, done: float) -> None:
        """Make the smallest weights zeros, all that are wanted once ``done`` is ``PRUNED``."""
        share = self.zeros * (1 - max(0.0, 1 - done / PRUNED) ** 3)
        for name in self.names:
            weight = self.free[name].detach()
            if share and weight.numel() >= LEAST_WEIGHTS:
                count = round(share * weight.numel())
                least = weight.abs().flatten().sort().values[count]
                self.masks[name] = (weight.abs() >= least).float()

    def weights(self) -> dict[str, Tensor]:
        """Return what the model multiplies by."""
        found = dict(self.free)
        for name, step in self.steps.items():
            found[name] = codes(found[name], step.exp(), self.form) * step.exp()
        for name, mask in self.masks.items():
            found[name] = found[name] * mask
        return found

    def numbers(self) -> dict[str, np.ndarray]:
        """Return the same as float64."""
        return {name: one.detach().double().numpy() for name, one in self.weights().items()}

    def run(self, steps: int, exact: int) -> None:
        """Learn for so many steps, the last of them on the golden model's integers."""
        groups = [
            {"params": list(self.free.values()), "lr": RATE},
            {"params": list(self.steps.values()), "lr": STEP_RATE},
        ]
        optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda step: min(1, step / 20) * 0.5 * (1.01 + math.cos(math.pi * step / steps)),
        )
        began, smooth = time.monotonic(), 0.0
        for step in range(steps):
            if self.zeros and step % 10 == 0 and step <= PRUNED * steps + 10:
                self.prune(step / steps)
            inputs, wanted = self.task.batch()
            integers = None
            if step >= steps - exact:
                if (step - steps + exact) % RANGES_EVERY == 0:
                    self.task.calibrate(self.numbers())
                integers = self.task.integers(self.numbers())
            output = Forward(self.graph, self.weights(), inputs, integers).output
            loss = self.task.loss(output, wanted)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(self.free.values()), 1.0)
            optimizer.step()
            schedule.step()
            now = float(loss.detach())
            smooth = now if step == 0 else 0.95 * smooth + 0.05 * now
            if step % 25 == 24:
                spent = time.monotonic() - began
                print(f"step {step + 1}: loss {smooth:.4f}, {spent:.0f} s", flush=True)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return what is written: codes with their scales, other matrices in half precision."""
        found: dict[str, np.ndarray] = {}
        for name, value in self.numbers().items():
            if name in self.steps:
                step = self.steps[name].detach().exp().numpy()
                ints = np.rint(value / step).astype(np.int64)
                common = np.maximum(np.gcd.reduce(ints, axis=1, keepdims=True), 1)
                found[name] = (ints // common).astype(np.int8)
                found[f"{name}_scale"] = (step * common).astype(np.float32)
            else:
                found[name] = value.astype(np.float16 if value.ndim == 2 else np.float32)
        # The file has rows behind each other, however they lie in memory.
        return {name: np.ascontiguousarray(value) for name, value in found.items()}


def main() -> None:
    """Train, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", choices=sorted(FORMATS), default=INT8)
    parser.add_argument("--zeros", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--exact", type=int, default=100)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--tokenizer", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    options, text = Quantization(weights=given.weights), is_text(given.model)
    task = (
        Texts(given.model, given.tokenizer, options, given.length)
        if text
        else Images(given.model, options)
    )
    tuning = Tuning(task, given.zeros)
    tuning.run(given.steps, given.exact)
    given.folder.mkdir(parents=True, exist_ok=True)
    save_file(tuning.tensors(), given.folder / WEIGHTS_FILE)
    description = task.model.replace(name=given.folder.name).to_toml()
    file = DECODER_FILE if text else DESCRIPTION_FILE
    (given.folder / file).write_text(description, encoding="utf-8")
    characters = MODELS / given.model / CHARACTERS_FILE
    if characters.is_file():
        (given.folder / CHARACTERS_FILE).write_bytes(characters.read_bytes())


if __name__ == "__main__":
    main()
