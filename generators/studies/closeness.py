"""Errors of a quantized model, with INT8 and INT16 activations, against its float model."""

from pathlib import Path

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend import digits
from celosia.generators.frontend.other_files import refuse_other
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import TextSource, is_text, load_text
from celosia.generators.frontend.weights import model_names
from celosia.generators.quantize.calibrate import Progress, calibrate
from celosia.generators.quantize.options import MIXED, Quantization
from celosia.generators.quantize.parting import Parting, compare_models
from celosia.generators.quantize.quantize import quantize_calibrated
from celosia.generators.quantize.texts import calibration_texts

IMAGES = 300
"""Images of the digits' training split for calibration."""
TEXTS, TOKENS = 16, 128
"""Texts that a decoder generates for calibration, and the length of all texts (tokens)."""
OPTIONS = {
    "table": Quantization(),
    "wide": Quantization(wide_functions=True),
    MIXED: Quantization(activations=MIXED),
}
"""Quantization options by the kind of activation function."""


def closeness(
    model: str, tokenizer: Path | None, config: Config, count: int, progress: Progress
) -> dict[str, Parting]:
    """Return the errors of a quantized model against its float model, by quantization option.

    The model is a classifier of digits, compared on ``count`` test images, or a language model,
    compared on ``count`` generated texts. Raises :class:`InputError` for any other model.
    """
    if is_text(model):
        return _texts(load_text(model, tokenizer), count, progress)
    refuse_other(Path(model))
    if model not in model_names():
        raise InputError(
            f"Model {model} is neither a language model nor one of the digits: "
            f"{', '.join(model_names())}"
        )
    source = load_source(model)
    train, test = digits.load()
    samples = digits.patches(train.images[:IMAGES])
    ranges = calibrate(source.description, source.weights, samples, 100.0, progress)
    images = list(digits.patches(test.images[:count]))
    by_options = {}
    for name, options in _options(source.description.activation).items():
        made = quantize_calibrated(source.description, source.weights, ranges, config, options)
        by_options[name] = compare_models(made, source.weights, images)
    return by_options


def _options(activation: str) -> dict[str, Quantization]:
    """Return the options that change a model with an activation function."""
    return {
        name: options
        for name, options in OPTIONS.items()
        if not options.wide_functions or options.wide(activation)
    }


def _texts(source: TextSource, count: int, progress: Progress) -> dict[str, Parting]:
    model, weights = source.description, source.weights
    if model.source_layers:
        raise InputError(f"Model {model.name} answers sources, and is not compared with its floats")
    samples, others = (
        calibration_texts(model, weights, source.tokenizer.begin, options, progress)
        for options in (
            Quantization(texts=TEXTS, length=TOKENS, seed=1),
            Quantization(texts=count, length=TOKENS, seed=2),
        )
    )
    by_options = {}
    for name, options in _options(model.activation).items():
        made = quantize_calibrated(model, weights, samples, None, options)
        by_options[name] = compare_models(made, weights, list(others.tokens))
    return by_options
