"""The float graph of a Transformer, for encoders and decoders alike.

A node computes a value from other values, and names its weight tensors. The float reference
evaluates the graph, calibration observes its values, and the quantizer converts nodes one after
another to integer operations (:mod:`celosia.generators.graph.quantized`).
"""

import enum
import functools
from dataclasses import dataclass, replace

from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription

Description = ModelDescription | TextDescription


class Home(enum.Enum):
    """Place of a value: residual stream, scratchpad, or cache of keys and values for later runs."""

    STREAM = "stream"
    """The residual stream: INT16 with the same step in the whole model."""
    SCRATCHPAD = "scratchpad"
    """Values that only the next operations read."""
    CACHE = "cache"
    """Kept with the rows of earlier runs: keys and values of a decoder."""
    SOURCE = "source"
    """Kept from the source's run: keys and values of cross-attention."""


@dataclass(frozen=True)
class Value:
    """The result of a node, [rows, columns]."""

    name: str
    columns: int
    rows: int = 0
    """Rows, the first ones of the node's source; 0 for one row for each token of the run."""
    home: Home = Home.SCRATCHPAD
    place: str = ""
    """Buffer shared by values that follow each other; "" for the last part of the name."""

    @property
    def buffer(self) -> str:
        """Name of the buffer that holds the value."""
        return self.place or self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Embedding:
    """``target = words[token]``, plus ``positions[position]`` if positions are learned."""

    target: Value
    words: str
    """Name of the table of tokens' vectors, [vocabulary, columns]."""
    positions: str
    """Name of the position table, [places, columns]; "" if none is added."""


@dataclass(frozen=True)
class Start:
    """``target = positions``, to which a later linear layer adds the embedded input.

    The positions are the learned position vectors, or zeros if the model has none. If the model has
    a class token, the token's vector is added to row 0. The later linear layer embeds the input,
    and adds the result to the rows after the class token.
    """

    target: Value


@dataclass(frozen=True)
class Linear:
    """``target[row:] = activation(source @ weight.T + bias) * gain + residual``.

    The first ``row`` rows of the target are not written. The bias, the activation, the gain (a
    trained factor) and the residual (an earlier value that is added) are optional.
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
    """``target = normalize(source) * weight + bias``, by layer norm or RMS norm.

    ``name`` is the prefix of the tensors' names: ``name.weight`` and, if present, ``name.bias``.
    """

    source: Value
    target: Value
    name: str
    heads: int = 0
    """Heads of a row that are normalized separately; 0 for whole rows."""


@dataclass(frozen=True)
class Convert:
    """``target = source``, converted to the quantization scale of ``target``."""

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
    """``target = source * up``, the elementwise product in a gated MLP.

    ``source`` is the gate layer's output after the activation. ``up`` is the up projection's
    output.
    """

    source: Value
    up: Value
    target: Value


@dataclass(frozen=True)
class Attention:
    """``target = softmax(query @ key.T / sqrt(head_dim)) @ value`` per head, plus a residual.

    Heads are slices of the columns. If there are fewer key heads than query heads, neighbouring
    query heads share a key head. ``key.home``, the memory of keys and values, determines to which
    tokens a query attends. For ``CACHE`` (the KV cache) these are the tokens of the text so far.
    For ``SOURCE`` they are the tokens of the encoder's input, whose keys and values an earlier run
    has computed. For any other memory they are the tokens of the input.
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
    """``target`` is the mean of the rows of ``source``."""

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
        """All nodes; the nodes of an encoder-decoder's encoder are first."""
        return [*(() if self.source is None else self.source.nodes), *self.nodes]

    @property
    def nodes(self) -> list[Node]:
        """All nodes except the nodes of an encoder-decoder's encoder."""
        return [*self.before, *(node for layer in self.layers for node in layer), *self.after]


@functools.cache
def network(model: Description) -> Network:
    """Return the float graph of a model from the model's description."""
    main_graph = _Builder(model).run()
    if isinstance(model, TextDescription) and model.source_layers:
        return replace(main_graph, source=_Builder(model, "source.").run())
    return main_graph


class _Builder:
    def __init__(self, model: Description, start: str = ""):
        self.model = model
        self.start = start
        """Prefix of all names."""
        self.nodes: list[Node] = []
        self.still = set[str]()
        """Prefixes of the layers without rotations."""
        if isinstance(model, TextDescription):
            layers = range(model.layers)
            self.still = {f"layers.{layer}" for layer in layers if not model.rotates(layer)}

    def run(self) -> Network:
        model = self.model
        source, x = self._before()
        before = self._take()
        layers, count = [], model.layers
        if isinstance(model, TextDescription) and self.start:
            count = model.source_layers
        for layer in range(count):
            x = self._block(f"{self.start}layers.{layer}", x)
            layers.append(self._take())
        output = self._after(x)
        rows = model.sequence if isinstance(model, ModelDescription) else 0
        return Network(model, source, output, before, tuple(layers), self._take(), rows)

    def _take(self) -> tuple[Node, ...]:
        collected, self.nodes = tuple(self.nodes), []
        return collected

    def _stream(self, name: str, place: str = "stream") -> Value:
        return Value(name, self.model.dim, home=Home.STREAM, place=place)

    def _linear(
        self,
        name: str,
        source: Value,
        target: Value,
        *,
        row: int = 0,
        gain: str = "",
        residual: Value | None = None,
    ) -> Value:
        weight, bias = f"{name}.weight", f"{name}.bias"
        self.nodes.append(
            Linear(source, target, weight, bias, row=row, gain=gain, residual=residual)
        )
        return target

    def _active(self, name: str, sums: str, source: Value, target: Value, function: str) -> Value:
        """Add a linear layer with its activation; ``sums`` names the value between them."""
        weight, bias, between = f"{name}.weight", f"{name}.bias", Value(sums, target.columns)
        node = Linear(source, target, weight, bias, activation=function, sums=between)
        self.nodes.append(node)
        return target

    def _norm(self, name: str, source: Value, target: Value) -> Value:
        self.nodes.append(Norm(source, target, name))
        return target

    def _before(self) -> tuple[Value, Value]:
        """Return the host's input, and the input of the first block."""
        model = self.model
        if isinstance(model, TextDescription):
            embedding = self._stream(f"{self.start}embedding")
            positions = f"{self.start}positions" if model.position == "learned" else ""
            words = f"{self.start}words" if model.source_words else "words"
            self.nodes.append(Embedding(embedding, words, positions))
            return Value("input", 1), embedding
        embedding = self._stream("embedding")
        if model.embedding_norm:
            embedding = Value("embedding", model.dim)
        source = embedding
        if model.embedding == "linear":
            source, start = Value("input", model.features, model.tokens), None
            if model.class_token or model.positions == "learned":
                start = Value("start", model.dim, home=embedding.home, place=embedding.buffer)
                self.nodes.append(Start(start))
            row = int(model.class_token)
            self._linear("embed", source, embedding, row=row, residual=start)
        if model.embedding_norm:
            self._norm("embedding_norm", embedding, self._stream("embedding_norm"))
            return source, self._stream("embedding_norm")
        return source, embedding

    def _block(self, prefix: str, x: Value) -> Value:
        """Add the nodes of a layer; return its output on the residual stream."""
        model = self.model
        normed = model.norm != "none"
        post = normed and model.placement == "post"

        def before(name: str, source: Value) -> Value:
            target = Value(f"{prefix}.{name}_input", model.dim)
            if normed and not post:
                norm = "norm" if model.parallel else f"{name}_norm"
                return self._norm(f"{prefix}.{norm}", source, target)
            self.nodes.append(Convert(source, target))
            return target

        def after(name: str, source: Value, place: str) -> Value:
            if not post:
                return source
            norm = f"{prefix}.{name}_norm"
            return self._norm(norm, source, self._stream(norm, place))

        if not normed and model.skip:
            # Without norms the stream's range varies: it has another step in each layer.
            rescaled = self._stream(f"{prefix}.stream")
            self.nodes.append(Convert(x, rescaled))
            x = rescaled
        h = before("attention", x)
        total = self._stream(f"{prefix}.attention_sum", x.buffer)
        self._attention(prefix, h, total, x if model.skip else None)
        x = after("attention", total, "stream" if x.buffer == "stream_normed" else "stream_normed")
        if not model.ffn:
            return x
        if isinstance(model, TextDescription) and model.source_layers and not self.start:
            x = self._cross(f"{prefix}.cross", x)
        if not model.parallel:
            h = before("mlp", x)
        residual = x if model.skip or model.parallel else None
        total = self._stream(f"{prefix}.mlp_sum", "stream_normed" if post else "stream")
        self._mlp(prefix, h, total, residual)
        return after("mlp", total, "stream")

    def _cross(self, prefix: str, x: Value) -> Value:
        """Add the attention of the residual stream to the source; return the stream."""
        h = Value(f"{prefix}.attention_input", self.model.dim)
        self._norm(f"{prefix}.attention_norm", x, h)
        total = self._stream(f"{prefix}.attention_sum")
        self._attention(prefix, h, total, x, Home.SOURCE)
        return total

    def _attention(
        self,
        prefix: str,
        x: Value,
        total: Value,
        residual: Value | None,
        home: Home = Home.SCRATCHPAD,
    ) -> None:
        """Add an attention; with home SOURCE another run computes its keys and values."""
        model = self.model
        text = isinstance(model, TextDescription)
        rotary = isinstance(model, TextDescription) and model.position == "rotary"
        if text and not self.start and home is not Home.SOURCE:
            home = Home.CACHE
        gain = f"{prefix}.attention_gain" if model.parallel else ""
        width, kv_width = model.query_width, model.kv_width

        def projected(name: str, columns: int, home: Home) -> Value:
            target = Value(f"{prefix}.{name}", columns, home=home)
            if home is Home.SOURCE:
                return target
            if name == "value" or not rotary:
                return self._linear(f"{prefix}.{name}", x, target)
            sums = Value(f"{prefix}.{name}_sums", columns)
            if isinstance(model, TextDescription) and model.head_norms:
                raw = self._linear(f"{prefix}.{name}", x, Value(f"{prefix}.{name}_heads", columns))
                normed = Value(f"{prefix}.{name}_normed", columns)
                self.nodes.append(
                    Norm(raw, normed, f"{prefix}.{name}_norm", columns // model.head_dim)
                )
                self.nodes.append(Convert(normed, sums))
            else:
                self._linear(f"{prefix}.{name}", x, sums)
            self.nodes.append(Rotary(sums, target, still=prefix in self.still))
            return target

        query = projected("query", width, Home.SCRATCHPAD)
        key = projected("key", kv_width, home)
        value = projected("value", kv_width, home) if model.values else x
        window = global_tokens = 0
        if isinstance(model, ModelDescription) and model.window < model.sequence - 1:
            window, global_tokens = model.window, min(model.global_tokens, model.sequence)
        seen = window, global_tokens, model.variable
        if not model.output:
            self.nodes.append(Attention(query, key, value, total, prefix, gain, residual, *seen))
            return
        context = Value(f"{prefix}.context", width)
        self.nodes.append(Attention(query, key, value, context, prefix, "", None, *seen))
        self._linear(f"{prefix}.output", context, total, gain=gain, residual=residual)

    def _mlp(self, prefix: str, x: Value, total: Value, residual: Value | None) -> None:
        model = self.model

        hidden = Value(f"{prefix}.hidden", model.ffn)
        if model.gated:
            gate = Value(f"{prefix}.active", model.ffn)
            self._active(f"{prefix}.gate", f"{prefix}.gate", x, gate, model.activation)
            up = self._linear(f"{prefix}.up", x, Value(f"{prefix}.up", model.ffn))
            self.nodes.append(Gate(gate, up, hidden))
        else:
            self._active(f"{prefix}.up", f"{prefix}.up", x, hidden, model.activation)
        gain = f"{prefix}.mlp_gain" if model.parallel else ""
        self._linear(f"{prefix}.down", hidden, total, gain=gain, residual=residual)

    def _keep(self, x: Value) -> None:
        """Add the keys and values of every layer's cross-attention."""
        for layer in range(self.model.layers):
            for name in ("key", "value"):
                full = f"layers.{layer}.cross.{name}"
                target = Value(full, self.model.kv_width, home=Home.SOURCE)
                self._linear(full, x, target)

    def _after(self, stream: Value) -> Value:
        """Add the nodes after the last block; return the output."""
        model = self.model
        if isinstance(model, TextDescription):
            final = Value(f"{self.start}final", model.dim)
            if model.final_norm:
                self._norm(f"{self.start}final_norm", stream, final)
            else:
                self.nodes.append(Convert(stream, final))
            if self.start:
                self._keep(final)
                return final
            logits = Value("logits", model.vocabulary)
            weight = "words" if model.tied else "head.weight"
            self.nodes.append(Linear(final, logits, weight, "head.bias"))
            return logits
        rows = int(model.pooling == "class")
        x = Value("final", model.dim, rows)
        if model.final_norm:
            self._norm("final_norm", stream, x)
        elif model.pooling == "mean" or model.classes:
            self.nodes.append(Convert(stream, x))
        else:
            return Value(stream.name, model.dim, rows, Home.STREAM, stream.buffer)
        if model.pooling == "mean":
            self.nodes.append(Pool(x, pooled := Value("pooled", model.dim, 1), model.variable))
            x = pooled
        if model.head_hidden:
            hidden = Value("head_hidden", model.head_hidden, x.rows)
            x = self._active("head_hidden", "head_up", x, hidden, model.head_activation)
        if model.classes:
            output = Value("raw_output", model.classes, x.rows, place="output")
            return self._linear("head", x, output)
        return x
