"""Float models, read from ONNX, Hugging Face and llama2.c files."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from celosia.arch.arguments import checked
from celosia.arch.errors import InputError
from celosia.generators.frontend.named_inputs import as_array
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.sources import PACKAGES, load_source
from celosia.generators.frontend.text_sources import (
    TextSource,
    is_packaged,
    is_text,
    load_text,
)
from celosia.generators.frontend.tokenizer import TokenizerLike, read_sentences
from celosia.generators.frontend.weights import Floats, model_names
from celosia.generators.quantize.texts import random_sources, sample_texts
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward
from celosia.tables import Shown, figure_table
from celosia.tb.models.digits_model import read_digits
from celosia.tb.models.run_inputs import CALIBRATION

Inputs = str | ArrayLike | Sequence[Any]
"""Texts, or arrays in the model's input form [count, ...]; token numbers for a language model.

For a model of several inputs, each sample is a mapping from the input's name to its array.
"""
_TOKENS = 8
_SEED = 1


@dataclass(frozen=True, eq=False, repr=False)
class Model(Shown):
    """A float model with the host's pre- and postprocessing, as :func:`load` returns it."""

    name: str
    """The name or path passed to :func:`load`."""
    source: Source | TextSource
    tokens: int = 0
    """The longest input that was asked for, 0 for the model's own."""

    def floats(self, inputs: Inputs) -> list[Floats]:
        """Run the float model on each input; return a list with a float64 array for each input.

        ``inputs`` are texts, arrays in the model's input form, or token numbers for a language
        model. The array of an input is:

        - for an encoder, its output after the host's postprocessing;
        - for a decoder, the logits after each of n tokens, [n, vocabulary];
        - for an encoder-decoder, whose input is a source text, the logits of the answer's first
          token, [1, vocabulary].

        Raises :class:`InputError` if an input does not fit the model.
        """
        return [self._float(values) for values in self.prepared(inputs)]

    @checked(count=1)
    def examples(self, count: int = 1) -> list[Any]:
        """Return a list of ``count`` example inputs, which depend on the model.

        - A classifier of digits that comes with the package gets test images.
        - Any other encoder with a tokenizer gets sentences.
        - A decoder gets lists of token numbers, which the decoder itself generates.
        - An encoder-decoder gets lists of random token numbers.
        - Any other model gets arrays of random numbers in the form of its inputs.
        """
        source, rng = self.source, np.random.default_rng(_SEED)
        if isinstance(source, TextSource):
            model, length = source.description, min(_TOKENS, source.description.positions)
            if model.source_layers:
                return random_sources(model, count, _SEED)
            begin = source.tokenizer.begin
            some = sample_texts(
                model, source.weights, begin, count=count, length=length, seed=_SEED
            )
            return some.tokens.tolist()
        if self.name in model_names():
            images = read_digits(self.name, source)[1]
            return [images[index % len(images)] for index in range(count)]
        if source.tokenizer is not None:
            sentences = read_sentences(CALIBRATION, blank=True)
            return [sentences[index % len(sentences)] for index in range(count)]
        return [source.random(rng) for _ in range(count)]

    def prepared(self, inputs: Inputs) -> list[NDArray[Any]]:
        """Preprocess inputs as the host does; return a list with an array for each input.

        For a language model the arrays contain token numbers.
        Raises :class:`InputError` if an input does not fit the model.
        """
        source = self.source
        if isinstance(source, TextSource):
            return [np.array(tokens) for tokens in token_rows(self.name, source.tokenizer, inputs)]
        return [
            source.prepare(source.encode(each) if isinstance(each, str) else each)
            for each in as_sequence(self.name, inputs)
        ]

    @checked()
    def origin(self, folder: str | Path) -> dict[str, Any]:
        """Return a dictionary with which :func:`open` finds the float model of a saved program.

        ``folder`` is the folder in which the program is saved. The dictionary has these entries:

        - ``model``: the model's name or, for a file or folder, its path relative to ``folder``.
        - ``tokens``: the length of the longest input (tokens), or 0 for the model's default.
        - ``digest``: the hash :attr:`digest` of the model's description and weights.
        """
        name = self.name if is_named(self.name) else os.path.relpath(self.name, folder)
        return {"model": name, "tokens": self.tokens, "digest": self.digest}

    @property
    def digest(self) -> str:
        """Hash of the model's description and weights, as a hexadecimal text.

        The model's name does not change the hash.
        """
        weights, unnamed = self.source.weights, self.source.description.replace(name="model")
        known = hashlib.blake2b(unnamed.to_toml().encode(), digest_size=16)
        for name in sorted(weights):
            known.update(name.encode() + np.asarray(weights[name], np.float32).tobytes())
        return known.hexdigest()

    def _float(self, prepared: NDArray[Any]) -> Floats:
        source = self.source
        if isinstance(source, Source):
            return source.floats(prepared)
        model, cache, tokens = source.description, KvCache(), prepared[None]
        if model.source_layers:
            forward(model, source.weights, tokens, cache, source=True)
            tokens = np.array([[model.start]])
        logits: Floats = forward(model, source.weights, tokens, cache)["logits"][0]
        return logits

    def lines(self) -> list[dict[str, Any]]:
        """Return a table of the model's name, kind, dimensions and number of parameters.

        Each line of the table is a dictionary with the keys ``figure`` (a name) and ``value``.
        """
        model, text = self.source.description, isinstance(self.source, TextSource)
        return figure_table(
            model=model.name,
            kind="decoder" if text else "encoder",
            layers=model.layers,
            tokens=model.positions if text else model.tokens,
            columns=model.dim,
            vocabulary=model.vocabulary or None,
            parameters=sum(weight.size for weight in self.source.weights.values()),
        )


def is_named(model: str) -> bool:
    """Return whether ``model`` is a model's name, such as ``digits``, and not the path of a file.

    Celosia itself contains the named models, except ``minilm``. The model ``minilm`` is in another
    Python package.
    """
    return model in (*PACKAGES, *model_names()) or is_packaged(model)


def as_sequence(name: str, inputs: Inputs) -> Sequence[Any]:
    """Return ``inputs`` as a sequence of inputs; a single text becomes a list of one text.

    ``name`` is the model's name in messages. Raises :class:`InputError` if ``inputs`` is empty or
    is neither a sequence, an array nor a text.
    """
    some = [inputs] if isinstance(inputs, str) else inputs
    if hasattr(some, "__array__") and not isinstance(some, np.ndarray):
        some = as_array(name, some)
    listed = isinstance(some, Sequence) or (isinstance(some, np.ndarray) and some.ndim > 0)
    if not listed or not len(some):
        raise InputError(f"Model {name} takes a sequence of inputs, not {repr(inputs)[:60]}")
    return some


def token_rows(name: str, tokenizer: TokenizerLike | None, inputs: Inputs) -> list[list[int]]:
    """Return a list of token numbers for each input, which is a text or a row of token numbers.

    ``name`` is the model's name in messages. Raises :class:`InputError` if an input is neither a
    text nor a row of integers [n].
    """
    rows = []
    for entry in as_sequence(name, inputs):
        text = isinstance(entry, str) and tokenizer is not None
        tokens = as_array(name, tokenizer.encode(entry) if text else entry)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not tokens.size:
            raise InputError(
                f"An input of model {name} must be a text or token numbers [n], not an array "
                f"{list(tokens.shape)} of {tokens.dtype}"
            )
        rows.append([int(token) for token in tokens])
    return rows


@checked(tokens=0)
def load(model: str | Path, *, tokenizer: str | Path | None = None, tokens: int = 0) -> Model:
    """Load a float model: an ONNX file, a Hugging Face folder, a llama2.c file, or a known name.

    A known name is the name of a model in this package, such as ``digits``, or in another Python
    package. ``tokenizer`` is the file of a language model's tokenizer, by default the tokenizer in
    the model's folder. ``tokens`` is the length of the longest input (tokens) of an encoder that
    accepts inputs of any length; 0 selects the model's default. Raises :class:`InputError` if the
    model is not found, or has operations that are not supported.
    """
    name = str(model)
    if not is_text(name):
        if tokenizer is not None:
            raise InputError(f"Model {name} is an encoder; leave out tokenizer {tokenizer}")
        return Model(name, load_source(name, tokens), tokens)
    if tokens:
        raise InputError(f"Model {name} is a language model; leave out tokens, which is {tokens}")
    return Model(name, load_text(name, None if tokenizer is None else Path(tokenizer)))
