"""A quantized model: integer operations on integer tensors, before tiling."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.graph.network import Description, Home
from celosia.generators.graph.operations import Attention, Embedding, Linear, Op, Rotary
from celosia.generators.graph.tensors import Ints, Tensor, quantize
from celosia.generators.reference.cache import in_window
from celosia.generators.reference.floats import unit_rows

D = TypeVar("D", bound=Description)


@dataclass(frozen=True)
class Graph(Generic[D]):
    """A model's integer operations, in execution order.

    If the first operation is an :class:`Embedding`, the input is token numbers, and the output is
    the scores of all vocabulary tokens. Layers differ only in tensor names, weights and
    requantization parameters.
    """

    description: D
    input: Tensor
    output: Tensor
    stream: Tensor
    """The residual stream; in a model with norms it has the same scale everywhere."""
    start: Ints | None
    """The stream before the first operation, [sequence, dim]; None if no operation reads it."""
    before: tuple[Op, ...]
    layers: tuple[tuple[Op, ...], ...]
    after: tuple[Op, ...]
    source: "Graph[D] | None" = None
    """For the decoder of an encoder-decoder, the graph of the encoder; otherwise None. The last
    operations of the encoder compute the keys and values of each decoder layer's cross-attention.
    """

    @property
    def ops(self) -> list[Op]:
        """List of all operations of this graph, in execution order.

        If the graph is the decoder of an encoder-decoder, the operations of the encoder
        (``source``) are not included.
        """
        return [*self.before, *(op for layer in self.layers for op in layer), *self.after]

    @property
    def graphs(self) -> "list[Graph[D]]":
        """List of the model's graphs in execution order: one graph, or two for an encoder-decoder.

        An encoder-decoder has the graph of its encoder (:attr:`source`) and the graph of its
        decoder (this object).
        """
        return [self] if self.source is None else [self.source, self]

    @property
    def all_ops(self) -> list[Op]:
        """List of the operations of all :attr:`graphs`, in execution order."""
        return [op for graph in self.graphs for op in graph.ops]

    @property
    def linears(self) -> list[Linear]:
        """List of the linear layers in :attr:`ops`, in execution order."""
        return [op for op in self.ops if isinstance(op, Linear)]

    @property
    def weight_bytes(self) -> int:
        """Number of bytes in which the weights of all linear layers are stored.

        Requantization parameters are not counted. For an encoder-decoder, the weights of the
        encoder (:attr:`source`) are counted, too.
        """
        return sum(op.stored_bytes for op in self.all_ops if isinstance(op, Linear))

    @property
    def reads_tokens(self) -> bool:
        """True if the model's input is token numbers, false if it is a vector for each token."""
        return any(isinstance(op, Embedding) for op in self.before)

    @property
    def encodes(self) -> bool:
        """True if this is the graph of the encoder in an encoder-decoder."""
        return any(op.target.home is Home.SOURCE for op in self.after)

    @property
    def embedding(self) -> Embedding:
        """The operation that looks up the tokens' vectors."""
        (embedding,) = (op for op in self.before if isinstance(op, Embedding))
        return embedding

    def macs(self: "Graph[ModelDescription]", length: int) -> int:
        """Return the number of multiply-accumulates in an inference of ``length`` tokens.

        Only the multiply-accumulates of linear layers and attention are counted. Padding tokens,
        which extend a shorter input to the model's sequence length, are not counted.
        """
        total, padding = 0, self.description.sequence - length
        for op in self.ops:
            if isinstance(op, Linear):
                # A tensor with fewer rows than the input has no row for each token.
                left = padding if op.source.rows >= self.input.rows else 0
                total += (op.source.rows - left) * op.size
            elif isinstance(op, Attention):
                pairs = in_window(op.key.rows - padding, op.window, op.global_tokens).sum()
                total += 2 * int(pairs) * op.head_dim * len(op.heads)
        return total

    def quantize_input(self, values: NDArray[np.floating]) -> NDArray[np.signedinteger]:
        """Return the model's input ``values`` [..., tokens, features], quantized to INT8 or INT16.

        If the model does not begin with a linear embedding, ``values`` must be the rows that
        :func:`celosia.generators.frontend.embedding.lookup` returns.
        """
        return quantize(values, self.input).astype("<i2" if self.input.wide else np.int8)

    def dequantize_output(
        self: "Graph[ModelDescription]", values: NDArray[np.signedinteger]
    ) -> NDArray[np.float64]:
        """Return the machine's integer outputs [..., rows, columns] as real numbers.

        If the field ``unit`` of the model's description is true, each row is then divided by its
        Euclidean length.
        """
        real: NDArray[np.float64] = self.output.scale * (np.asarray(values, np.float64))
        return unit_rows(real) if self.description.unit else real

    @cached_property
    def named(self) -> Mapping[str, Op]:
        """A dictionary from the name of each tensor to the operation that computes the tensor."""
        return {op.target.name: op for op in self.ops}

    @property
    def attentions(self) -> list[Attention]:
        """List of all attention operations of the layers, in execution order.

        A layer with a cross-attention has two attention operations; any other layer has one.
        """
        return [op for op in self.ops if isinstance(op, Attention)]

    @property
    def rotary(self) -> Ints | None:
        """Table of the cosines and sines that rotate a head's columns, [positions, columns].

        If :class:`Rotary` operations have tables of different lengths, it is the longest table. If
        no operation rotates, it is None.
        """
        pairs = (op.pairs for op in self.ops if isinstance(op, Rotary))
        return max(pairs, key=len, default=None)

    @property
    def kv_bits(self) -> int:
        """Number of bits in which each element of attention's values (V) is stored.

        Elements of keys (K) have the same number of bits, with one exception: in each head, the
        first :attr:`full_width_key_columns` columns of the keys have 8 bits.
        """
        return next((op.kv_bits for op in self.attentions), OPERAND_BITS)

    @property
    def key_bits(self) -> int:
        """Number of bits in which elements of attention's keys (K) are stored.

        In each head, the first :attr:`full_width_key_columns` columns of the keys are an exception:
        their elements have 8 bits. If a head has no other columns, the result is 8.
        """
        return OPERAND_BITS if self.full_width_key_columns == self.key_dim else self.kv_bits

    @property
    def full_width_key_columns(self) -> int:
        """Number of 8-bit columns in each head of attention's keys (K).

        These columns are the first columns of the head. The elements of all other key columns have
        :attr:`kv_bits` bits.
        """
        return self.attentions[0].full_width_key_columns

    @property
    def block(self) -> int:
        """Number of adjacent columns of attention's values (V) that share an exponent.

        It is 0 if the values are stored without exponents.
        """
        return next((op.block for op in self.attentions), 0)

    @property
    def key_dim(self) -> int:
        """Number of columns of a head's queries and keys."""
        return self.attentions[0].key_dim

    @property
    def places(self: "Graph[Any]") -> int:
        """Largest number of tokens that an input or a text may have.

        For a text, it is the number of rows in the table of rotary angles or, if no operation
        rotates, in the table of learned positions.
        """
        if not self.reads_tokens:
            return int(self.description.sequence)
        table = self.embedding.positions if self.rotary is None else self.rotary
        assert table is not None
        return len(table)


IntegerGraph: TypeAlias = Graph[Any]
"""A graph whose description may be of any kind."""
QuantizedModel: TypeAlias = Graph[ModelDescription]
"""The graph of an encoder."""
Decoder: TypeAlias = Graph[TextDescription]
"""The graph of a model of texts."""
TextGraph = Decoder
