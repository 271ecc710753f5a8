"""Check that a compiled program computes the integers of the quantized model."""

import numpy as np

from celosia.arch.errors import RunError
from celosia.generators.frontend.source import Source
from celosia.generators.lower.artefact import Artefact
from celosia.models import Model
from celosia.tb.models.self_check import decoder_error, encoder_error

MOST_CYCLES = 10_000_000
"""Most predicted cycles of an inference, or of :data:`TOKENS` tokens, of a program that
:func:`celosia.compile` checks; the check of a longer one takes minutes."""
TOKENS = 6
"""Tokens of each text with which a language model is checked."""
_SEED = 1


def check_program(code: Artefact, model: Model) -> None:
    """Run a program on random inputs on the golden machine; compare it with the quantized model.

    A language model runs on six tokens, an encoder on an input of full length. An encoder for
    inputs of any length also runs on an input of a third of this length. Raises :class:`RunError`
    if an integer differs from the quantized model's, or two engines access the same memory in an
    undefined order.
    """
    rng = np.random.default_rng(_SEED)
    if isinstance(model.source, Source):
        source = model.source
        rows = source.rows(source.prepare(source.random(rng)))
        inputs = [rows] * code.batch
        if model.source.description.variable:
            inputs.append(rows[: -(-len(rows) // 3)])
        error = encoder_error(code, inputs)
    else:
        length = min(TOKENS, code.places)
        texts = rng.integers(0, code.vocabulary, (code.batch, length)).tolist()
        error = decoder_error(code, texts)
    if error:
        raise RunError(
            f"The program of model {code.name} is wrong, which is a fault of Celosia: {error}"
        )
