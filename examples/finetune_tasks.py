"""Tasks of fine-tuning: a model's inputs, its loss, and its conversion to integers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from straight_through import Forward
from torch import Tensor
from torch.nn import functional
from train_digits import augment

from celosia.arch.formats import FORMATS, NESTED
from celosia.arch.presets import PRESETS
from celosia.generators.frontend import digits
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.frontend.weights import Weights
from celosia.generators.graph.builder import network
from celosia.generators.graph.fewer_planes import is_nested, with_upper_bits
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.quantize.calibrate import calibrate
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_calibrated, quantize_stepped
from celosia.generators.quantize.tensor_steps import Steps
from celosia.generators.quantize.texts import given_texts, sample_texts

TOGETHER = 128
"""Number of texts that are sampled at once."""


def divergence(scores: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean divergence of the choices of scores [n, choices] from the wanted ones."""
    logs, target = scores.log_softmax(-1), wanted.log_softmax(-1)
    return functional.kl_div(logs, target, log_target=True, reduction="batchmean")


class Images:
    """Images of the digits' training split and mixtures of two, with the old model's scores.

    The old model is the only teacher in a long training on such inputs (Beyer et al. 2022,
    "Knowledge distillation: a good teacher is patient and consistent").
    """

    def __init__(self, source: str, options: Quantization):
        loaded = load_source(source)
        self.model, self.weights, self.options = loaded.description, loaded.weights, options
        self.graph = network(self.model)
        self.before = {
            name: torch.tensor(value, dtype=torch.float32) for name, value in loaded.weights.items()
        }
        split, _ = digits.load()
        self.images, self.size = torch.from_numpy(split.images), 64

    def batch(self) -> tuple[np.ndarray, Tensor]:
        """Return inputs [batch, tokens, features], half of them mixtures, and scores of classes."""
        first, second = (
            augment(self.images[torch.randint(0, len(self.images), (self.size,))]) for _ in range(2)
        )
        share = torch.rand(self.size, 1, 1)
        share[: self.size // 2] = 1
        inputs = digits.patches((share * first + (1 - share) * second).numpy())
        with torch.no_grad():
            return inputs, Forward(self.graph, self.before, inputs).output[:, 0]

    def loss(self, output: Tensor, scores: Tensor) -> Tensor:
        """Return the divergence of outputs [batch, 1, classes] from scores."""
        return divergence(output[:, 0], scores)

    def calibrate(self, weights: Weights) -> None:
        """Find the ranges of all tensors."""
        inputs = digits.patches(self.images[:256].numpy())
        self.ranges = calibrate(self.model, weights, inputs)

    def integers(self, weights: Weights, _bits: int) -> IntegerGraph:
        """Return the model in integers."""
        config = PRESETS["small"]
        return quantize_calibrated(self.model, weights, self.ranges, config, self.options)


class Texts:
    """Texts that a language model samples, and its scores of all next tokens."""

    def __init__(
        self, source: str, tokenizer: Path | None, options: Quantization, count: int, length: int
    ):
        loaded = load_text(source, tokenizer)
        model, weights = loaded.description, dict(loaded.weights)
        model.refuse_source("Fine-tuning")
        tokens, scores = [], []
        for first in range(0, count, TOGETHER):
            some, seed = min(TOGETHER, count - first), 7 + first // TOGETHER
            samples = sample_texts(
                model, weights, loaded.tokenizer.begin, count=some, length=length, seed=seed
            )
            tokens.append(samples.tokens)
            logits = samples.rows["logits"].reshape(*samples.tokens.shape, -1)
            scores.append(torch.tensor(logits, dtype=torch.float32))
        self.tokens, self.scores = np.concatenate(tokens), torch.cat(scores)
        if model.tied:
            # Vectors that are looked up stay in INT8.
            model, weights["head.weight"] = model.replace(tied=False), weights["words"]
        self.model, self.weights, self.options = model, weights, options
        self.size = 4

    def batch(self) -> tuple[np.ndarray, Tensor]:
        """Return tokens [batch, length], and the scores of the tokens after them."""
        picked = torch.randint(0, len(self.tokens), (self.size,))
        return self.tokens[picked.numpy()], self.scores[picked]

    def loss(self, output: Tensor, scores: Tensor) -> Tensor:
        """Return the divergence of outputs [batch, length, vocabulary] from scores."""
        return divergence(output.flatten(0, 1), scores.flatten(0, 1))

    def calibrate(self, weights: Weights) -> None:
        """Find the steps of all tensors."""
        texts = [list(map(int, text)) for text in self.tokens[:4]]
        samples = given_texts(self.model, weights, texts, self.tokens.shape[1])
        balance = 0.0 if self.options.weights in (*FORMATS, NESTED) else None
        self.options = replace(self.options, balance=balance)
        self.steps = Steps(self.model, weights, samples, self.options)

    def integers(self, weights: Weights, bits: int) -> IntegerGraph:
        """Return the model in integers, with some bits of nested weights."""
        model = quantize_stepped(self.model, weights, self.steps, self.options)
        return with_upper_bits(model, bits) if is_nested(model) else model
