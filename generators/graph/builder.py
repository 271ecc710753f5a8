"""The float graph of a model, built from the model's description."""

import functools
from dataclasses import replace

from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.graph.network import (
    Attention,
    Convert,
    Description,
    Embedding,
    Gate,
    Home,
    Linear,
    Network,
    Node,
    Norm,
    Pool,
    Rotary,
    Start,
    Value,
)


@functools.cache
def network(model: Description) -> Network:
    """Return a model's graph of floating-point operations, built from the model's description."""
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
