"""Search for small weight formats whose loss exceeds that of INT8 by at most a bound."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend import digits
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.frontend.weights import Floats, model_names
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.graph.tensors import Ints
from celosia.generators.quantize.calibrate import Progress, calibrate
from celosia.generators.quantize.mixed import Mixture, choose_formats
from celosia.generators.quantize.options import INT8, Quantization
from celosia.generators.quantize.policy import LEAST_ERROR, RANGES
from celosia.generators.quantize.quantize import quantize_calibrated, quantize_stepped
from celosia.generators.quantize.tensor_steps import Steps
from celosia.generators.quantize.texts import calibration_texts
from celosia.generators.reference.integers import evaluate

IMAGES = 300
"""Images of the digits' training split on which a loss is measured, after as many for
calibration."""
LOOKED = 40
"""Images whose tensors show how the outputs of matrices change."""
TEXTS, TOKENS = 3, 128
"""Number and length of the generated texts on which a decoder's loss is measured."""


_Options = TypeVar("_Options", bound=Quantization)
Show = Callable[[str], AbstractContextManager[Progress]]
"""A context that shows the progress of a step under a title."""


def search_formats(
    name: str,
    source: TextSource | None,
    config: Config,
    options: _Options,
    bound: float | None,
    show: Show,
) -> tuple[_Options, str]:
    """Choose a weight format for each matrix of a model; return options with formats and a summary.

    The loss may exceed the INT8 model's loss by ``bound``: nats per token for a language model, or
    percentage points for a classifier of digits (if ``source`` is None). If ``bound`` is None, no
    format changes. Raises :class:`InputError` for any other model.
    """
    check_loss(bound, options.weights)
    if bound is None:
        return options, ""
    if options.balance is None:
        policy = RANGES if source is None else LEAST_ERROR
        options = replace(options, balance=policy.balance)
    with show("Formats of weights") as update:
        if source is not None:
            mixture = mix_text(source, options, bound, update)
        else:
            mixture = mix_digits(name, config, options, bound, update)
    return replace(options, chosen=mixture.chosen), mixture.summary


def check_measured(model: str) -> None:
    """Raise :class:`InputError` if ``model`` is not one of the package's classifiers of digits.

    Accuracy is measured on labelled images, which only these models have.
    """
    if model not in model_names():
        raise InputError(
            f"Option loss measures accuracy on the digits, which {model} does not take"
        )


def check_loss(bound: float | None, weights: str) -> None:
    """Raise :class:`InputError` if a search for weight formats cannot use the options.

    The allowed loss ``bound`` must be None (no search), or finite and not negative. With a search,
    the format ``weights`` of all matrices must be INT8.
    """
    if bound is not None and not 0 <= bound < math.inf:
        raise InputError(f"Loss must be a number from 0 on, not {bound}")
    if bound is not None and weights != INT8:
        raise InputError(
            f"Option loss searches the format of each matrix, so weights must be {INT8}, not "
            f"{weights}"
        )


def mix_digits(
    model: str, config: Config, options: Quantization, bound: float, progress: Progress
) -> Mixture:
    """Choose a weight format for each matrix of a classifier of digits; return the best mixture.

    The loss is the percentage of wrong answers on training images that calibration does not use.
    The best mixture has the fewest bytes of the measured mixtures whose loss exceeds the INT8
    model's loss by at most ``bound``.
    """
    check_measured(model)
    source = load_source(model)
    train, _ = digits.load()
    images = digits.patches(train.images[: 2 * IMAGES])
    ranges = calibrate(
        source.description, source.weights, images[:IMAGES], options.percentile, None
    )
    labels = train.labels[IMAGES : 2 * IMAGES]
    exact: list[np.ndarray] = []

    def make(form: str) -> IntegerGraph:
        chosen = replace(options, weights=form)
        return quantize_calibrated(source.description, source.weights, ranges, config, chosen)

    def measure(model: IntegerGraph) -> tuple[float, float]:
        outputs = np.stack(
            [
                model.dequantize_output(evaluate(model, image)["output"]).ravel()
                for image in images[IMAGES:]
            ]
        )
        if not exact:
            exact.append(outputs)
        wrong = 100 * float(np.mean(outputs.argmax(axis=1) != labels))
        return wrong, float(np.mean((outputs - exact[0]) ** 2))

    def look(model: IntegerGraph) -> dict[str, Ints]:
        runs = [
            evaluate(model, image) | {"input": model.quantize_input(image).astype(np.int64)}
            for image in images[:LOOKED]
        ]
        return {
            name: np.concatenate([run[name] for run in runs])
            for name in runs[0]
            if runs[0][name].ndim == 2
        }

    return choose_formats(make, measure, look, bound, progress)


def mix_text(
    source: TextSource, options: Quantization, bound: float, progress: Progress
) -> Mixture:
    """Choose a weight format for each matrix of a language model; return the best mixture.

    The loss is the cross-entropy (nats per token) between the float and the quantized model's
    probabilities on generated texts. The best mixture has the fewest bytes of the measured mixtures
    whose loss exceeds the INT8 model's loss by at most ``bound``.
    """
    model, weights, begin = source.description, source.weights, source.tokenizer.begin
    model.refuse_source("A search for formats")
    samples = calibration_texts(model, weights, begin, options)
    others = replace(options, texts=TEXTS, length=TOKENS, seed=options.seed + 1)
    tried = calibration_texts(model, weights, begin, others)
    steps = Steps(model, weights, samples, options)

    def make(form: str) -> IntegerGraph:
        return quantize_stepped(model, weights, steps, replace(options, weights=form))

    scores = tried.rows["logits"].reshape(*tried.tokens.shape, -1)
    expected = np.exp(_logarithms(scores))  # [texts, tokens, vocabulary]

    def measure(decoder: IntegerGraph) -> tuple[float, float]:
        logits = np.stack([evaluate(decoder, tokens)["logits"] for tokens in tried.tokens])
        loss = -float(
            np.mean(
                np.sum(expected * _logarithms(decoder.output.scale * logits.astype(np.float64)), -1)
            )
        )
        return loss, loss

    def look(decoder: IntegerGraph) -> dict[str, Ints]:
        return evaluate(decoder, tried.tokens[0])

    return choose_formats(make, measure, look, bound, progress)


def _logarithms(logits: Floats) -> Floats:
    """Return the logarithms of the probabilities of logits [..., vocabulary]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
