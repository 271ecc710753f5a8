"""A float model as it was imported: what the machine runs of it, and what the host does."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from generators.frontend.description import ModelDescription
from generators.frontend.embedding import check_shape, lookup
from generators.frontend.host import Array, HostStep, apply
from generators.frontend.tokenizer import Tokenizer
from generators.frontend.weights import Floats, Weights
from generators.reference.floats import forward


@dataclass(frozen=True)
class Source:
    """A float model, what surrounds it, and what turns texts into its inputs."""

    description: ModelDescription
    weights: Weights
    tokenizer: Tokenizer | None = None
    """None where the model does not take texts."""
    before: tuple[HostStep, ...] = ()
    """Steps of the host before the machine's part, table lookups apart."""
    after: tuple[HostStep, ...] = ()
    """Steps of the host behind the machine's output, [rows, columns]."""
    unused: tuple[str, ...] = ()
    """Tensors of the file that the output does not depend on."""
    labels: tuple[str, ...] = ()
    """The names of the output's columns, where the model knows them."""
    shape: tuple[int, ...] | None = None
    """Shape of an input where ``before`` takes another one than the description tells."""
    vocabulary: int = 0
    """Tokens that there are, where ``before`` takes their numbers."""
    path: Path | None = None
    """The folder that the model lies in, with files that say how to prepare inputs."""

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the token numbers of a text, [n], cut to what the model takes.

        Raises :class:`InputError` where the model has no tokenizer, or as
        :meth:`generators.frontend.tokenizer.Tokenizer.encode`.
        """
        if self.tokenizer is None:
            raise InputError(f"Model {self.description.name} does not take texts")
        return self.tokenizer.encode(text, self.description.tokens)

    def prepare(self, values: Array) -> Array:
        """Return what ``before`` makes of one input: what the description says.

        Raises :class:`InputError` where the input has another shape than the model takes.
        """
        self.check(np.asarray(values)[None])
        return apply(self.before, values)

    def check(self, inputs: Array) -> None:
        """Raise :class:`InputError` where inputs [count, ...] have a shape that does not fit."""
        if self.shape is None:
            check_shape(self.description, inputs)
            return
        given, model = inputs.shape[1:], self.description
        short = model.variable and self.vocabulary and len(given) == 1
        if given != self.shape and not (short and 1 <= given[0] <= self.shape[0]):
            most = "at most " if short else ""
            text = ", ".join(["count", *map(str, self.shape)]).replace(", ", f", {most}", 1)
            raise InputError(
                f"Inputs of model {model.name} must have the shape [{text}], "
                f"not {list(inputs.shape)}"
            )

    def rows(self, prepared: Array) -> Floats:
        """Return what the machine is given for a prepared input."""
        if self.description.embedding == "linear":
            return np.asarray(prepared, np.float64)
        found: Floats = lookup(self.description, self.weights, prepared[None])[0]
        return found

    def finish(self, output: Floats) -> Array:
        """Return what the whole model gives where the machine's part gives [rows, columns]."""
        return apply(self.after, output)

    def floats(self, prepared: Array) -> Array:
        """Return what the whole model gives for a prepared input, in float64."""
        return self.finish(forward(self.description, self.weights, prepared[None])["output"][0])

    def random(self, rng: np.random.Generator) -> Array:
        """Return a random input of full length, in the model's own form, not prepared."""
        model = self.description
        vocabulary = self.vocabulary or model.vocabulary
        if vocabulary:
            return rng.integers(0, vocabulary, self.shape or (model.tokens,))
        return rng.normal(0, 1, self.shape or (model.tokens, model.features))
