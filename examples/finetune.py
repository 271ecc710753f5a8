"""Fine-tune a model for weights of few bits, or with zeros, and write it as a new model.

Usage: python examples/finetune.py MODEL FOLDER [--weights FORMAT | --zeros SHARE] [--steps N]
    [--exact N] [--rate RATE] [--texts N] [--length N] [--tokenizer FILE]

MODEL is one of the digits' models or a language model, FOLDER the place of the new one. Needs the
extra ``train``. Weights are codes in the forward pass and learn as real numbers; so do the codes'
steps. In the last steps, ``--exact`` of them, the forward pass is the integer golden model's, with
activations in INT8. The codes are written, and the quantizer keeps them as they are.

A model learns from its own answers: models of digits for the images of the training split, a
language model for each next token of texts that it samples (Liu et al. 2023, "LLM-QAT").
``--zeros`` sets the smallest weights of each matrix to zero, a growing share of them (Zhu and Gupta
2017). With ``--weights nested`` steps use 8, 4 and 2 bits of the same codes in turn (Nair et al.
2025, "Matryoshka Quantization").
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from finetune_tasks import Images, Texts
from safetensors.numpy import save_file
from straight_through import Forward, codes, matrices, nested
from torch import Tensor
from training import MODELS

from celosia.arch.formats import FORMATS, NESTED, OPERAND_BITS
from celosia.generators.frontend.text_sources import CHARACTERS_FILE, DECODER_FILE, is_text
from celosia.generators.frontend.weights import DESCRIPTION_FILE, WEIGHTS_FILE
from celosia.generators.graph.builder import network
from celosia.generators.quantize.options import INT8, Quantization
from celosia.generators.quantize.stored import quantize_weights

RATE, STEP_RATE = 2e-3, 4e-3
"""Learning rates of weights, and of the logarithms of their steps."""
RANGES_EVERY = 25
"""Number of exact steps between calibrations."""
TURNS = (2, 4, 2, 8)
"""Bits of nested weights in successive steps."""
PRUNED = 0.6
"""Share of the steps after which all zeros are set."""
LEAST_WEIGHTS = 1000
"""Fewest weights of a matrix that gets zeros."""


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
        self.nested = task.options.weights == NESTED
        if self.form is not None:
            for name in self.names:
                _, _, steps = quantize_weights(task.weights[name], self.form, 0, None)
                logarithms = torch.tensor(np.log(steps), dtype=torch.float32)[:, None]
                self.steps[name] = logarithms.requires_grad_()

    def prune(self, done: float) -> None:
        """Set the smallest weights to zero, all requested ones once ``done`` is ``PRUNED``."""
        share = self.zeros * (1 - max(0.0, 1 - done / PRUNED) ** 3)
        for name in self.names:
            weight = self.free[name].detach()
            if share and weight.numel() >= LEAST_WEIGHTS:
                count = round(share * weight.numel())
                least = weight.abs().flatten().sort().values[count]
                self.masks[name] = (weight.abs() >= least).float()

    def weights(self, bits: int = OPERAND_BITS) -> dict[str, Tensor]:
        """Return the weights that the model multiplies by, with some bits of nested weights."""
        tuned = dict(self.free)
        for name in self.names if self.nested else ():
            ints, step = nested(tuned[name], bits)
            tuned[name] = ints * step
        for name, step in self.steps.items():
            tuned[name] = codes(tuned[name], step.exp(), self.form) * step.exp()
        for name, mask in self.masks.items():
            tuned[name] = tuned[name] * mask
        return tuned

    def numbers(self) -> dict[str, np.ndarray]:
        """Return the weights in float64."""
        return {name: tensor.detach().double().numpy() for name, tensor in self.weights().items()}

    def run(self, steps: int, exact: int, rate: float) -> None:
        """Train for ``steps`` steps, the last ``exact`` of them on the golden model's integers."""
        groups = [
            {"params": list(self.free.values()), "lr": rate},
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
            bits = TURNS[step % len(TURNS)] if self.nested else OPERAND_BITS
            integers = None
            if step >= steps - exact:
                if (step - steps + exact) % RANGES_EVERY == 0:
                    self.task.calibrate(self.numbers())
                integers = self.task.integers(self.numbers(), bits)
            output = Forward(self.graph, self.weights(bits), inputs, integers).output
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
        """Return the tensors to write: codes with scales, other matrices in half precision."""
        arrays: dict[str, np.ndarray] = {}
        for name, value in self.numbers().items():
            if name in self.steps:
                step = self.steps[name].detach().exp().numpy()
                ints = np.rint(value / step).astype(np.int64)
                common = np.maximum(np.gcd.reduce(ints, axis=1, keepdims=True), 1)
                arrays[name] = (ints // common).astype(np.int8)
                arrays[f"{name}_scale"] = (step * common).astype(np.float32)
            elif self.nested and name in self.names:
                ints, scale = nested(self.free[name], OPERAND_BITS)
                arrays[name] = ints.detach().numpy().astype(np.int8)
                arrays[f"{name}_scale"] = scale.numpy().astype(np.float32)
            else:
                arrays[name] = value.astype(np.float16 if value.ndim == 2 else np.float32)
        # The file has rows behind each other, however they lie in memory.
        return {name: np.ascontiguousarray(value) for name, value in arrays.items()}


def main() -> None:
    """Train, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", choices=[*sorted(FORMATS), NESTED], default=INT8)
    parser.add_argument("--zeros", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--exact", type=int, default=100)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--texts", type=int, default=128)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--tokenizer", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    options, text = Quantization(weights=arguments.weights), is_text(arguments.model)
    if arguments.weights == NESTED and not text:
        parser.error(f"weights {NESTED} are for language models, not for {arguments.model}")
    task = (
        Texts(arguments.model, arguments.tokenizer, options, arguments.texts, arguments.length)
        if text
        else Images(arguments.model, options)
    )
    tuning = Tuning(task, arguments.zeros)
    tuning.run(arguments.steps, arguments.exact, arguments.rate)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    save_file(tuning.tensors(), arguments.folder / WEIGHTS_FILE)
    description = task.model.replace(name=arguments.folder.name).to_toml()
    file = DECODER_FILE if text else DESCRIPTION_FILE
    (arguments.folder / file).write_text(description, encoding="utf-8")
    characters = MODELS / arguments.model / CHARACTERS_FILE
    if characters.is_file():
        (arguments.folder / CHARACTERS_FILE).write_bytes(characters.read_bytes())


if __name__ == "__main__":
    main()
