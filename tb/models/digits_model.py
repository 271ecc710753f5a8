"""Images of handwritten digits as model inputs, and the compilation of a model that reads them."""

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend import digits
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.weights import model_names
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.lower.options import Options

CALIBRATION_IMAGES = 256


def compile_digits(model: str, config: Config, options: Options | None = None) -> Artefact:
    """Return Celosia's digit model named ``model``, compiled for the configuration ``config``.

    The model is calibrated on training images. Raises :class:`InputError` if the model is unknown,
    does not accept images of digits, or does not fit the configuration.
    """
    source = load_source(model)
    samples, _, _ = read_digits(model, source)
    return compile_model(source.description, source.weights, samples, config, options)


def read_digits(
    model: str, source: Source
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Return calibration images, test images, and the test images' labels for a digit model.

    Images are model inputs [count, tokens, features]. Raises :class:`InputError` if ``model`` is
    not the name of one of Celosia's models of handwritten digits.
    """
    if model in model_names():
        train, test = digits.load()
        samples = digits.patches(train.images[:CALIBRATION_IMAGES])
        return samples, digits.patches(test.images), test.labels
    if source.tokenizer is not None:
        raise InputError(f"Model {model} takes texts; give them with --inputs FILE")
    shape = source.shape or (source.description.tokens, source.description.features)
    if source.description.embedding == "tokens":
        shape = (source.description.tokens,)
    text = ", ".join(map(str, ("count", *shape)))
    raise InputError(
        f"Model {model} takes inputs of the shape [{text}]; give them with --inputs FILE.npy, or "
        "ask for random ones with --inputs random:COUNT"
    )
