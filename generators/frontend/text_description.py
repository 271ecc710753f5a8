"""Descriptions of language models with or without an encoder: shapes and settings."""

import re
from dataclasses import dataclass
from typing import ClassVar

from celosia.arch.errors import InputError
from celosia.generators.frontend.base_description import ACTIVATIONS, Description, Shapes

ATTENTION = ("query", "key", "value", "output")
"""The linear layers of an attention."""


@dataclass(frozen=True, kw_only=True)
class TextDescription(Description):
    """Shape and settings of a decoder: token numbers in, a score for each next token out.

    A layer computes ``x + attention(norm(x))``, then ``x + mlp(norm(x))``. In an encoder-decoder,
    attention to the encoder's output, ``x + cross(norm(x))``, is computed between these two. Raises
    :class:`InputError` for an invalid field.
    """

    vocabulary: int
    """Number of tokens in the vocabulary."""
    positions: int
    """Number of places (tokens) of the longest text that the model was made for."""
    norm: str = "rmsnorm"
    position: str = "rotary"
    """Kind of positions: rotated queries and keys, or trained vectors that are added."""
    bounded: bool = False
    """True if no text may have more places than ``positions``, since from there on layers attend to
    a window, or positions differ."""
    rotary_base: float = 10000.0
    """Base of the rotary angles: columns 2j and 2j + 1 of a query's or key's head are rotated by
    ``position * rotary_base ** (-2j / head_dim)`` (Su et al. 2021)."""
    rotated: str = "1"
    """Pattern of the layers, repeated over all of them: 1 for a layer that rotates queries and
    keys, 0 for one without positions."""
    head_norms: bool = False
    """True if queries and keys of each head are normalized before the rotation, with RMS norms
    whose weights all heads of a layer share."""
    rotary_speeds: bool = False
    """True if the angles per place of a head's pairs are trained or chosen: a tensor of that name
    has them, [head_dim / 2] (radians)."""
    gated: bool = True
    """True if the MLP is ``down(activation(gate(x)) * up(x))`` (Shazeer 2020) instead of
    ``down(activation(up(x)))``."""
    activation: str = "silu"
    bias: bool = False
    tied: bool = True
    """True if the head's weights are the vocabulary's vectors."""
    head_bias: bool = False
    """True if the head adds a bias to each score."""
    source_layers: int = 0
    """Number of the encoder's blocks, which have no causal mask; 0 for a decoder alone."""
    source_positions: int = 0
    """Number of places (tokens) of the longest source."""
    source_words: bool = False
    """True if the encoder's tokens have separate vectors, one for each word of the vocabulary."""
    start: int = 0
    """The first token of an answer to a source."""

    unit: ClassVar[bool] = False
    variable: ClassVar[bool] = False
    skip: ClassVar[bool] = True
    parallel: ClassVar[bool] = False
    shaped: ClassVar[bool] = False
    values: ClassVar[bool] = True
    output: ClassVar[bool] = True
    """As :class:`celosia.generators.frontend.description.ModelDescription` names them."""

    POSITIVE = ("vocabulary", "positions", "dim", "layers", "heads", "ffn")
    NOT_NEGATIVE = (
        *("kv_heads", "head_dim", "epsilon", "source_layers", "source_positions", "start"),
    )
    CHOICES: ClassVar = {
        "norm": ("layernorm", "rmsnorm"),
        "position": ("rotary", "learned"),
        "placement": ("pre", "post"),
        "activation": ACTIVATIONS,
    }

    def __post_init__(self) -> None:
        """Fill in the defaults that depend on other fields and check everything."""
        self.check_fields()
        if self.position == "rotary" and self.head_dim % 2:
            raise InputError(
                f"Model field head_dim must be even where position is rotary, not {self.head_dim}"
            )
        if self.rotary_speeds and self.position != "rotary":
            raise InputError(
                f"Model field rotary_speeds must be false where position is {self.position}"
            )
        if not re.fullmatch("0*1[01]*", self.rotated) or len(self.rotated) > self.layers:
            raise InputError(
                f"Model field rotated must be digits 0 and 1 with a 1, at most {self.layers} for "
                f"the layers, not {self.rotated!r}"
            )
        if self.head_norms and self.position != "rotary":
            raise InputError(
                f"Model field head_norms must be false where position is {self.position}"
            )
        if self.position != "rotary" and "0" in self.rotated:
            raise InputError(
                f"Model field rotated must be 1 where position is {self.position}, not "
                f"{self.rotated!r}"
            )
        if self.rotary_base <= 1:
            raise InputError(f"Model field rotary_base must be more than 1, not {self.rotary_base}")
        self._check_source()

    def _check_source(self) -> None:
        if bool(self.source_layers) != bool(self.source_positions):
            raise InputError(
                f"Model fields source_layers and source_positions must both be positive or both "
                f"0, but source_layers is {self.source_layers} and source_positions is "
                f"{self.source_positions}"
            )
        if self.source_layers and self.position != "learned":
            raise InputError(
                f"Model field position must be learned where source_layers is "
                f"{self.source_layers}, not {self.position}"
            )
        if self.source_layers and (self.placement != "pre" or not self.final_norm):
            raise InputError(
                f"Model fields placement and final_norm must be pre and true where source_layers "
                f"is {self.source_layers}, not {self.placement} and {str(self.final_norm).lower()}"
            )
        if self.source_words and not self.source_layers:
            raise InputError("Model field source_words must be false where source_layers is 0")
        if self.start >= (self.vocabulary if self.source_layers else 1):
            most = "less than vocabulary" if self.source_layers else "0 without a source"
            raise InputError(f"Model field start must be {most}, not {self.start}")

    def refuse_source(self, work: str) -> None:
        """Raise :class:`InputError` if the model is an encoder-decoder.

        ``work`` is the name of the refused operation; the error message begins with it.
        """
        if self.source_layers:
            raise InputError(f"{work} is for decoders alone, and model {self.name} takes a source")

    def rotates(self, layer: int) -> bool:
        """Return whether layer number ``layer`` (from 0) has a rotary position embedding."""
        return self.position == "rotary" and self.rotated[layer % len(self.rotated)] == "1"

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Dictionary from the name of each linear layer in a block to its shape [outputs, inputs].

        The layers are those of the attention and of the MLP. If the MLP is not gated, the layer
        ``gate`` is missing.
        """
        shapes = super().projections
        if not self.gated:
            del shapes["gate"]
        return shapes

    def shapes(self) -> Shapes:
        """Return a dictionary from the name of each weight tensor to the tensor's shape."""
        shapes: Shapes = {"words": (self.vocabulary, self.dim)}
        if self.position == "learned":
            shapes["positions"] = (self.positions, self.dim)
        if self.rotary_speeds:
            shapes["rotary_speeds"] = (self.head_dim // 2,)
        for layer in range(self.layers):
            shapes |= self._block(f"layers.{layer}")
        if self.final_norm:
            shapes |= self.norm_shapes("final_norm")
        if not self.tied:
            shapes["head.weight"] = (self.vocabulary, self.dim)
        if self.head_bias:
            shapes["head.bias"] = (self.vocabulary,)
        return shapes | (self._source_shapes() if self.source_layers else {})

    def _block(self, prefix: str) -> Shapes:
        shapes = self.norm_shapes(f"{prefix}.attention_norm")
        shapes |= self.norm_shapes(f"{prefix}.mlp_norm")
        shapes |= self.projection_shapes(prefix, self.projections)
        for name in ("query_norm", "key_norm") if self.head_norms else ():
            shapes[f"{prefix}.{name}.weight"] = (self.head_dim,)
        return shapes

    def _source_shapes(self) -> Shapes:
        shapes: Shapes = {}
        if self.source_words:
            shapes["source.words"] = (self.vocabulary, self.dim)
        shapes["source.positions"] = (self.source_positions, self.dim)
        for layer in range(self.source_layers):
            shapes |= self._block(f"source.layers.{layer}")
        shapes |= self.norm_shapes("source.final_norm")
        for layer in range(self.layers):
            shapes |= self.norm_shapes(f"layers.{layer}.cross.attention_norm")
            shapes |= self.projection_shapes(f"layers.{layer}.cross", ATTENTION)
        return shapes
