"""Nodes and values of the float graph of a Transformer.

The float reference evaluates the graph, and the quantizer converts its nodes to integer operations.
"""

import enum
from dataclasses import dataclass

from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription

Description = ModelDescription | TextDescription


class Home(enum.Enum):
    """Storage class of a tensor: how long the accelerator keeps it, and with which scale."""

    STREAM = "stream"
    """The residual stream: INT16 with one scale in the whole model or, without norms, in each
    layer."""
    SCRATCHPAD = "scratchpad"
    """Temporary values that only the next operations of the same run read."""
    CACHE = "cache"
    """Keys and values of a decoder's self-attention, kept for all later runs."""
    SOURCE = "source"
    """Keys and values of cross-attention, computed once from the encoder's input."""


@dataclass(frozen=True)
class Value:
    """The result of a node of the float graph, [rows, columns]."""

    name: str
    columns: int
    rows: int = 0
    """Number of rows, computed from the first rows of the node's source; 0 for one row per
    token."""
    home: Home = Home.SCRATCHPAD
    place: str = ""
    """Buffer shared by values that follow each other; "" for the last part of the name."""

    @property
    def buffer(self) -> str:
        """Name of the memory buffer that holds the value."""
        return self.place or self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Embedding:
    """A token embedding: ``target = words[token]``, a row for each token.

    If positions are learned, ``positions[position]`` is added to each row.
    """

    target: Value
    words: str
    """Name of the table of tokens' vectors, [vocabulary, columns]."""
    positions: str
    """Name of the position table, [places, columns]; "" if none is added."""


@dataclass(frozen=True)
class Start:
    """The initial rows of ``target``, to which the embedding layer adds its output.

    The rows are the learned position vectors, or zeros if the model has none. If the model has a
    class token, its vector is added to row 0, and the embedding layer adds to the rows after it.
    """

    target: Value


@dataclass(frozen=True)
class Linear:
    """A linear layer: ``target[row:] = activation(source @ weight.T + bias) * gain + residual``.

    The target's rows before row number ``row`` are not written. The bias, the activation, the gain
    (a trained factor) and the residual (an earlier value that is added) are optional.
    """

    source: Value
    target: Value
    weight: str
    """Name of the weights, [outputs, inputs]."""
    bias: str
    """Name of the biases, [outputs]; the model may lack them."""
    row: int = 0
    activation: str = ""
    """Name of the activation function as in descriptions; "" for none."""
    sums: Value | None = None
    """Input of the activation."""
    gain: str = ""
    """Name of a trained factor, [1]; "" for none."""
    residual: Value | None = None


@dataclass(frozen=True)
class Norm:
    """A norm: ``target = normalize(source) * weight + bias``, by layer norm or RMS norm.

    ``name`` is the prefix of the tensors' names: ``name.weight`` and, if present, ``name.bias``.
    """

    source: Value
    target: Value
    name: str
    heads: int = 0
    """Heads of a row that are normalized separately; 0 for whole rows."""


@dataclass(frozen=True)
class Convert:
    """A conversion of ``source`` to the quantization scale of ``target``.

    In the float model, ``target`` equals ``source``.
    """

    source: Value
    target: Value


@dataclass(frozen=True)
class Rotary:
    """A rotary embedding: ``target`` is ``source`` after each head's pairs of columns are rotated.

    The angle is the position of the row's token times the pair's angular speed.
    """

    source: Value
    target: Value
    still: bool = False
    """True if the angle is 0 at every position. So layers with and without rotations are the same
    instructions, with other addresses."""


@dataclass(frozen=True)
class Gate:
    """The elementwise product in a gated MLP: ``target = source * up``.

    ``source`` is the gate layer's output after the activation. ``up`` is the up projection's
    output.
    """

    source: Value
    up: Value
    target: Value


@dataclass(frozen=True)
class Attention:
    """``target = softmax(query @ key.T / sqrt(head_dim)) @ value`` for each head, plus a residual.

    A head is a slice of columns. Neighbouring query heads may share a key head. If ``key.home`` is
    ``CACHE``, a token attends to the text so far. If ``key.home`` is ``SOURCE``, a token attends to
    the encoder's input.
    """

    query: Value
    key: Value
    value: Value
    target: Value
    prefix: str
    """Prefix of the names of scores, probabilities, and trained scalars."""
    gain: str = ""
    """Name of a trained factor, [1]; "" for none."""
    residual: Value | None = None
    window: int = 0
    """Tokens to each side to which a token attends, besides itself; 0 for all tokens."""
    global_tokens: int = 0
    """First tokens, which attend to all tokens and all tokens to them."""
    variable: bool = False
    """True if keys after an inference's last token are masked."""


@dataclass(frozen=True)
class Pool:
    """A pooling: ``target`` is the mean of the rows of ``source``."""

    source: Value
    target: Value
    variable: bool = False
    """True if rows after an inference's last token are excluded."""


Node = Embedding | Start | Linear | Norm | Convert | Rotary | Gate | Attention | Pool


@dataclass(frozen=True)
class Network:
    """The graph of a model: nodes in execution order."""

    description: Description
    input: Value
    """Input from the host: features, rows that it has looked up, or token numbers."""
    output: Value
    before: tuple[Node, ...]
    layers: tuple[tuple[Node, ...], ...]
    after: tuple[Node, ...]
    rows: int = 0
    """Rows of a value with one row for each token, if all runs have as many; 0 if not."""
    source: "Network | None" = None
    """The encoder that runs once on a source, for the keys and values of cross-attention."""

    @property
    def reads_tokens(self) -> bool:
        """True if the model's input is token numbers, false if it is a vector for each token."""
        return any(isinstance(node, Embedding) for node in self.before)

    @property
    def encodes(self) -> bool:
        """True if this is the graph of the encoder in an encoder-decoder."""
        return any(node.target.home is Home.SOURCE for node in self.after)

    @property
    def all_nodes(self) -> list[Node]:
        """All nodes; for an encoder-decoder, the encoder's nodes and then the decoder's."""
        return [*(() if self.source is None else self.source.nodes), *self.nodes]

    @property
    def nodes(self) -> list[Node]:
        """All nodes of this graph; for an encoder-decoder, only the decoder's nodes."""
        return [*self.before, *(node for layer in self.layers for node in layer), *self.after]
