"""An imported float model: layers that the machine runs, and functions that the host runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.embedding import check_shape, lookup
from celosia.generators.frontend.host_steps import Array, HostStep, Prepared, apply
from celosia.generators.frontend.named_inputs import NamedInputs, Values
from celosia.generators.frontend.tokenizer import Tokenizer
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.reference.floats import forward

_UNCUT = 1 << 20
"""More tokens than any text has."""


@dataclass(frozen=True)
class Source:
    """An imported float model, its host steps (functions that the host runs) and its tokenizer."""

    description: ModelDescription
    weights: Weights
    tokenizer: Tokenizer | None = None
    """None if the model does not take texts."""
    before: tuple[HostStep, ...] = ()
    """Steps of the host before the machine's part, without table lookups."""
    after: tuple[HostStep, ...] = ()
    """Steps of the host after the machine's output, [rows, columns]."""
    unused: tuple[str, ...] = ()
    """Tensors of the file that the output does not depend on."""
    labels: tuple[str, ...] = ()
    """The names of the output's columns, if known."""
    shape: tuple[int, ...] | None = None
    """Shape of an input if ``before`` takes another one than the description states."""
    types: int | None = None
    """Number of token types in a pair of texts, 0 if the model has none; None if it has some, but
    treats all tokens as of the first type."""
    longest: int = 0
    """Tokens at which a text is cut; 0 for the description's number."""
    pairs: bool = True
    """True if a text may be a pair of texts with a tab between them."""
    vocabulary: int = 0
    """Size of the vocabulary (tokens), if the steps in ``before`` take token numbers."""
    padding: int | None = None
    """Token that no input may contain, since it would change the outputs of others: it is masked,
    or later tokens have other positions. None without one."""
    compared: bool = True
    """False if the file can be run and was not compared with the import."""
    path: Path | None = None
    """The model's folder, with files that describe how to prepare inputs."""
    named: NamedInputs = field(default_factory=NamedInputs)
    """The names of the inputs."""

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the token numbers of a text, [n], or its token numbers and token types, [n, 2].

        A tab separates the two texts of a pair. A text is truncated to :attr:`longest` tokens or,
        if :attr:`longest` is 0, to the model's number of tokens. Raises :class:`InputError` if the
        model accepts no texts or pairs, or the tokens do not fit the model.
        """
        tokens = self._encode(text, self.longest or self.description.tokens)
        model = self.description
        if len(tokens) > model.tokens:
            raise InputError(
                f"A text has {len(tokens)} tokens, but model {model.name} takes {model.tokens}; "
                f"make it for more with --context {len(tokens)}"
            )
        return tokens

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Return the number of ``texts`` that :meth:`encode` would truncate."""
        most = self.longest or self.description.tokens
        return sum(len(self._encode(text, _UNCUT)) > most for text in texts)

    def _encode(self, text: str, most: int) -> NDArray[np.int64]:
        name = self.description.name
        if self.tokenizer is None:
            raise InputError(f"Model {name} does not take texts")
        first, *rest = text.split("\t")
        if len(rest) > self.pairs:
            takes = "one tab, between two texts" if self.pairs else "no tab, as it takes no pairs"
            raise InputError(f"A text of model {name} may have {takes}, not {text!r}")
        tokens = self.tokenizer.encode(first, most, *rest)
        if tokens.ndim == 2 and self.types is None:
            raise InputError(
                f"The tokens of a pair are of two types, but model {name} takes one; take its "
                "Hugging Face folder, which has the table of both"
            )
        return tokens if self.types or tokens.ndim == 1 else tokens[:, 0]

    def prepare(self, values: Values) -> Array:
        """Return one sample after the host steps (functions on the host) before the machine's run.

        ``values``, the sample, is an array, or a dictionary from each input's name to its array.
        With several inputs, the result is a :class:`Prepared`. Raises :class:`InputError` if an
        array does not fit the model or is not finite.
        """
        first, others = self.named.split_sample(self.description.name, values)
        self.check(first[None])
        for array in (first, *others.values()):
            wrong = array[~np.isfinite(array)]
            if wrong.size:
                raise InputError(
                    f"Inputs of model {self.description.name} must be finite numbers, but one is "
                    f"{wrong[0]}; replace it, as numpy.nan_to_num does"
                )
        prepared = apply(self.before, first, others)
        if not others:
            return prepared
        kept = np.asarray(prepared).view(Prepared)
        kept.others = others
        return kept

    def check(self, inputs: Array) -> None:
        """Raise :class:`InputError` if inputs [count, ...] do not fit the model.

        The inputs are those of the model, before the host applies any function. The error is raised
        if their shape is wrong, or if one of their tokens is the model's padding token.
        """
        numbers = inputs[..., 0] if self.types and inputs.ndim == 3 else inputs
        if self.padding is not None and (numbers == self.padding).any():
            raise InputError(
                f"Inputs of model {self.description.name} must be without its padding, token "
                f"{self.padding}, which it does not take for a token; leave it out"
            )
        if self.shape is None:
            check_shape(self.description, inputs)
            return
        shape, model = inputs.shape[1:], self.description
        if self.types and len(shape) == 2 and shape[1] == 2:
            shape = shape[:1]
        short = model.variable and shape[1:] == self.shape[1:] and len(shape) in (1, 2)
        short = short and bool(self.vocabulary or all(step.beside for step in self.before))
        if shape != self.shape and not (short and 1 <= shape[0] <= self.shape[0]):
            most = "at most " if short else ""
            text = ", ".join(["count", *map(str, self.shape)]).replace(", ", f", {most}", 1)
            raise InputError(
                f"Inputs of model {model.name} must have the shape [{text}], "
                f"not {list(inputs.shape)}"
            )

    def rows(self, prepared: Array) -> Floats:
        """Return the rows that the host writes into external memory for one input.

        ``prepared`` is the result of :meth:`prepare` for the input. For a linear embedding, the
        rows are ``prepared`` in float64. Otherwise the rows are the embedding vectors of the
        tokens.
        """
        if self.description.embedding == "linear":
            return np.asarray(prepared, np.float64)
        embedded: Floats = lookup(self.description, self.weights, prepared[None])[0]
        return embedded

    def finish(self, output: Floats, prepared: Array) -> Array:
        """Apply the host steps that follow the machine, and return the whole model's output.

        ``output`` is the machine's output, [rows, columns]. ``prepared`` is the result of
        :meth:`prepare` for the same input.
        """
        return apply(self.after, output, getattr(prepared, "others", {}))

    def floats(self, prepared: Array) -> Array:
        """Evaluate the whole model on one input in float64, and return its output.

        ``prepared`` is the result of :meth:`prepare` for the input.
        """
        output = forward(self.description, self.weights, np.asarray(prepared)[None])["output"][0]
        return self.finish(output, prepared)

    def random(self, rng: np.random.Generator) -> Values:
        """Return a random sample in the form that :meth:`prepare` accepts.

        The model's first input has the greatest length that the model accepts. Other inputs have
        fixed shapes.
        """
        return self.named.random(self._random(rng), rng)

    def _random(self, rng: np.random.Generator) -> Array:
        model = self.description
        vocabulary = self.vocabulary or model.vocabulary
        if vocabulary and self.padding is not None:
            drawn = rng.integers(0, vocabulary - 1, self.shape or (model.tokens,))
            return drawn + (drawn >= self.padding)
        if vocabulary:
            return rng.integers(0, vocabulary, self.shape or (model.tokens,))
        return rng.normal(0, 1, self.shape or (model.tokens, model.features))
