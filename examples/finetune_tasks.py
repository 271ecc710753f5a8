"""Tasks of fine-tuning: what a model learns from, its loss, and how it becomes integers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from train_digits import augment

from arch.formats import FORMATS
from arch.presets import PRESETS
from generators.frontend import digits
from generators.frontend.weights import Weights
from generators.graph import IntegerGraph
from generators.quantize.calibrate import calibrate
from generators.quantize.error_steps import ErrorSteps
from generators.quantize.options import Quantization
from generators.quantize.quantize import quantize_calibrated, quantize_stepped
from generators.quantize.texts import given_texts, sample_texts
from generators.reference.floats import forward
from generators.sources import load_source
from generators.text_sources import load_text

TOGETHER = 128
"""Texts that are made up at once."""


class Images:
    """The digits' training split, and what the model before makes of its images."""

    def __init__(self, source: str, options: Quantization):
        found = load_source(source)
        self.model, self.weights, self.options = found.description, found.weights, options
        split, _ = digits.load()
        self.images, self.labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
        self.size = 64

    def batch(self) -> tuple[np.ndarray, Tensor]:
        """Return inputs [batch, tokens, features], and shares of classes [batch, classes].

        They are half the labels', half the model's from before (Hinton et al. 2015).
        """
        picked = torch.randint(0, len(self.images), (self.size,))
        inputs = digits.patches(augment(self.images[picked]).numpy())
        before = forward(self.model, self.weights, inputs)["output"].reshape(self.size, -1)
        shares = torch.tensor(before, dtype=torch.float32).softmax(-1)
        labels = functional.one_hot(self.labels[picked], shares.shape[-1])
        return inputs, (shares + labels) / 2

    def loss(self, output: Tensor, shares: Tensor) -> Tensor:
        """Return the loss of outputs [batch, 1, classes]."""
        return functional.cross_entropy(output[:, 0], shares)

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

    def __init__(
        self, source: str, tokenizer: Path | None, options: Quantization, count: int, length: int
    ):
        found = load_text(source, tokenizer)
        model, weights = found.description, dict(found.weights)
        model.refuse_source("Fine-tuning")
        tokens, scores = [], []
        for first in range(0, count, TOGETHER):
            some, seed = min(TOGETHER, count - first), 7 + first // TOGETHER
            samples = sample_texts(
                model, weights, found.tokenizer.begin, count=some, length=length, seed=seed
            )
            tokens.append(samples.tokens)
            logits = samples.tensors["logits"].reshape(*samples.tokens.shape, -1)
            scores.append(torch.tensor(logits, dtype=torch.float32))
        self.tokens, self.scores = np.concatenate(tokens), torch.cat(scores)
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
