"""Recognition of the blocks of a Transformer encoder in the computations of a graph."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from celosia.generators.frontend.onnx.affine import as_linear
from celosia.generators.frontend.onnx.values import (
    Activation,
    Affine,
    Context,
    Index,
    Input,
    Linear,
    Lookup,
    Mean,
    Norm,
    Patches,
    Prepend,
    Shift,
    Sum,
    Tensor,
    UnsupportedError,
    View,
)
from celosia.generators.frontend.weights import Floats


@dataclass(frozen=True)
class Block:
    """A block of a recognized encoder: its input ``source``, its weights and its settings.

    ``weights`` is a dictionary from a weight's name in a model description, such as
    ``query.weight``, to its array. The names do not contain the layer's number.
    """

    source: Tensor
    weights: dict[str, Floats]
    heads: int
    kv_heads: int
    head_dim: int
    activation: str
    placement: str
    norms: tuple[Norm, ...]
    variable: bool
    causal: bool
    window: int
    global_tokens: int

    @property
    def kind(self) -> tuple[object, ...]:
        """Tuple of settings and weight shapes that must be the same for all blocks of a model."""
        shapes = tuple((name, value.shape) for name, value in sorted(self.weights.items()))
        placement = self.placement if self.norms else ""
        masks = self.variable, self.causal, self.window, self.global_tokens
        return self.heads, self.kv_heads, self.activation, placement, masks, shapes


@dataclass(frozen=True)
class Encoder:
    """A whole encoder: its blocks, first block first, and all weights outside of the blocks."""

    blocks: list[Block]
    weights: dict[str, Floats]
    dim: int
    classes: int
    pooling: str
    embedding: str
    norm: str
    epsilon: float
    rows: int
    """Number of rows that the blocks process."""
    start: Tensor | None
    """Input of the embedding, or, with ``prologue``, its output."""
    head_activation: str = ""
    prologue: str = ""
    """The value that the host computes instead of the embedding; empty if there is none."""
    name: str = ""
    """The value that this encoder computes, if it is not the graph's output."""


def match(output: View, names: Mapping[int, str]) -> Encoder:
    """Return the encoder that computes ``output``, the graph's output or an earlier value.

    The function compares the tensors from which ``output`` is computed with the layers of an
    encoder, from the last layer to the first. ``names`` is a dictionary from ``id(tensor)`` to the
    name of the tensor's value in the graph.

    Raises :class:`UnsupportedError` if the tensors differ from an encoder's layers. The message
    usually names the node of the first tensor that differs.
    """
    x = output.tensor
    weights: dict[str, Floats] = {}
    rows, columns = output.layout()
    classes, pooling, head_activation = 0, "none", ""
    if not np.array_equal(columns, np.arange(x.columns)):
        raise UnsupportedError(f"the output takes some of the columns of node {x.node}")
    if isinstance(x, Affine):
        x = as_linear(x)
    if isinstance(x, Linear):
        weights |= _parameters("head", x)
        classes, x = x.columns, x.source
        if isinstance(x, Activation) and isinstance(x.source, Linear):
            weights |= _parameters("head_hidden", x.source)
            head_activation, x = x.function, x.source.source
    if isinstance(x, Mean):
        pooling, x = "mean", x.source
    elif np.array_equal(rows, [0]) and x.rows > 1:
        pooling = "class"
    elif not np.array_equal(rows, np.arange(x.rows)):
        raise UnsupportedError(f"the output takes some of the tokens of node {x.node}")
    norms: list[Norm] = []
    if isinstance(x, Norm) and _block(x) is None:
        weights |= _affine("final_norm", x)
        norms.append(x)
        x = x.source
    blocks: list[Block] = []
    while (inner := _block(x)) is not None:
        blocks.insert(0, inner)
        x = inner.source
    if not blocks:
        raise UnsupportedError(
            f"node {x.node}: it is not the end of a block with attention and an MLP"
        )
    blocks = _alike(blocks)
    bare = not blocks[0].norms
    if norms and bare:
        raise UnsupportedError(
            f"node {norms[0].node}: it normalizes the output of blocks without norms"
        )
    norms += [norm for block in blocks for norm in block.norms]
    dim, length = x.columns, x.rows
    first, prologue, start = x, "", None
    parts: dict[str, Floats] = {}
    try:
        if isinstance(x, Norm):
            if bare:
                raise UnsupportedError(f"node {x.node}: its output goes to blocks without norms")
            parts |= _affine("embedding_norm", x)
            x = x.source
        embedding, start = _embedding(x, parts)
        if isinstance(first, Norm):
            norms.append(first)
    except UnsupportedError:
        # The host computes the first block's input.
        embedding, prologue, start, parts = "none", names.get(id(first), ""), first, {}
        if not prologue:
            raise
    if pooling == "class" and embedding == "linear" and "class_token" not in parts:
        raise UnsupportedError("the output takes the first token, which is no class token")
    weights |= parts
    kinds = {(norm.rms, norm.epsilon) for norm in norms}
    if len(kinds) > 1:
        nodes = ", ".join(sorted({norm.node for norm in norms}))
        raise UnsupportedError(f"norms differ in their kind or epsilon: {nodes}")
    rms, epsilon = kinds.pop() if kinds else (False, 1e-5)
    norm = "none" if not norms else "rmsnorm" if rms else "layernorm"
    return Encoder(
        blocks,
        weights,
        dim,
        classes,
        pooling,
        embedding,
        norm,
        epsilon,
        length,
        start,
        head_activation,
        prologue,
    )


def _alike(blocks: list[Block]) -> list[Block]:
    """Return blocks of one shape; smaller ones are filled up with zeros.

    Raises :class:`UnsupportedError` if they differ in more than their sizes.
    """
    heads, head_dim = (max(getattr(block, name) for block in blocks) for name in _SIZES)
    ffn = max(len(block.weights.get("up.weight", ())) for block in blocks)
    blocks = [_filled(block, heads, head_dim, ffn) for block in blocks]
    for number, block in enumerate(blocks):
        if block.kind != blocks[0].kind:
            raise UnsupportedError(f"block {number} has another shape than block 0")
    return blocks


_SIZES = ("heads", "head_dim")


def _filled(block: Block, heads: int, head_dim: int, ffn: int) -> Block:
    """Return a block with more heads, wider heads and a wider MLP, which add zeros."""
    more = ffn - len(block.weights.get("up.weight", ()))
    if (block.heads, block.head_dim, more) == (heads, head_dim, 0) or (
        block.kv_heads != block.heads
    ):
        return block
    weights, own = dict(block.weights), (block.heads, block.head_dim)
    # A description divides scores by the root of the head's width.
    gains = {"query": (head_dim / block.head_dim) ** 0.5}
    for name, tensor in block.weights.items():
        part = name.partition(".")[0]
        widths = [(0, 0)] * (tensor.ndim + 1)
        if part in ("query", "key", "value"):
            widths[:2] = [(0, size - old) for size, old in zip((heads, head_dim), own, strict=True)]
            split = tensor.reshape(*own, *tensor.shape[1:])
            wide = np.pad(gains.get(part, 1.0) * split, widths)
            weights[name] = wide.reshape(heads * head_dim, *tensor.shape[1:])
        elif name == "output.weight":
            widths[1:] = [(0, size - old) for size, old in zip((heads, head_dim), own, strict=True)]
            wide = np.pad(tensor.reshape(len(tensor), *own), widths)
            weights[name] = wide.reshape(len(tensor), heads * head_dim)
        elif part == "up":
            weights[name] = np.pad(tensor, [(0, more), *widths[2:]])
        elif name == "down.weight":
            weights[name] = np.pad(tensor, [(0, 0), (0, more)])
    return replace(block, weights=weights, heads=heads, kv_heads=heads, head_dim=head_dim)


def _parameters(name: str, linear: Linear) -> dict[str, Floats]:
    return {f"{name}.weight": linear.weight, f"{name}.bias": linear.bias}


def _affine(name: str, norm: Norm) -> dict[str, Floats]:
    return {f"{name}.weight": norm.gamma, f"{name}.bias": norm.beta}


def _orders(x: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
    """Yield the two operands of a sum in both orders, and nothing for other tensors."""
    if isinstance(x, Sum):
        yield x.left, x.right
        yield x.right, x.left


def _block(x: Tensor) -> Block | None:
    """Return the block that ends with a tensor."""
    if isinstance(x, Norm):
        return _post(x)
    for s, mlp in _orders(x):
        if (linears := _mlp(mlp)) is None:
            continue
        up, activation, down = linears
        middle, mlp_norm = _normed(up.source, s)
        block = _attention(s) if middle else None
        if block is None or (mlp_norm is None) != (not block.norms):
            continue
        weights = block.weights | _parameters("up", up) | _parameters("down", down)
        norms = block.norms
        if mlp_norm is not None:
            weights |= _affine("mlp_norm", mlp_norm)
            norms = (*norms, mlp_norm)
        return replace(block, weights=weights, activation=activation, norms=norms)
    return _attention(x)


def _post(x: Norm) -> Block | None:
    """Return the block that ends with the norm of a sum."""
    for s, mlp in _orders(x.source):
        linears = _mlp(mlp)
        if linears is None or linears[0].source is not s or not isinstance(s, Norm):
            continue
        up, activation, down = linears
        block = _attention(s)
        if block is None:
            continue
        weights = block.weights | _parameters("up", up) | _parameters("down", down)
        weights |= _affine("mlp_norm", x)
        return replace(block, weights=weights, activation=activation, norms=(*block.norms, x))
    return _attention(x)


def _attention(x: Tensor) -> Block | None:
    """Return the block without an MLP that ends with a tensor, or with the norm of a sum."""
    post = isinstance(x, Norm)
    for r, attention in _orders(x.source if isinstance(x, Norm) else x):
        context = _context(attention)
        if context is None or not isinstance(attention, Linear):
            continue
        query, own = _query(context)
        source, norm = _normed(own, r)
        if not source or (post and norm is not None):
            continue
        weights, norm = query | _parameters("output", attention), x if isinstance(x, Norm) else norm
        norms = () if norm is None else (norm,)
        if norm is not None:
            weights |= _affine("attention_norm", norm)
        return _made(r, weights, context, "", "post" if post else "pre", norms)
    return None


def _made(
    source: Tensor,
    weights: dict[str, Floats],
    context: Context,
    activation: str,
    placement: str,
    norms: tuple[Norm, ...],
) -> Block:
    heads, head_dim = context.value_columns.shape
    return Block(
        source,
        weights,
        heads,
        len(weights["key.bias"]) // head_dim,
        head_dim,
        activation,
        placement,
        norms,
        context.scores.variable,
        context.scores.causal,
        context.scores.window,
        context.scores.global_tokens,
    )


def _normed(x: Tensor, stream: Tensor) -> tuple[bool, Norm | None]:
    """Return whether a tensor is the stream or its norm, and the norm."""
    if x is stream:
        return True, None
    return isinstance(x, Norm) and x.source is stream, x if isinstance(x, Norm) else None


def _mlp(x: Tensor) -> tuple[Linear, str, Linear] | None:
    """Return the layers of an MLP and its activation."""
    if isinstance(x, Linear) and isinstance(x.source, Activation):
        up = x.source.source
        if isinstance(up, Linear):
            return up, x.source.function, x
    return None


def _context(x: Tensor) -> Context | None:
    if isinstance(x, Linear) and isinstance(x.source, Context):
        return x.source
    return None


def _query(context: Context) -> tuple[dict[str, Floats], Tensor]:
    """Return the projections of an attention, and their common input."""
    scores = context.scores
    heads, head_dim = scores.query_columns.shape
    if context.value_columns.shape != (heads, head_dim):
        raise UnsupportedError(f"node {context.node}: keys and values differ in width")
    shared = _shared(scores.key_columns, context.value_columns)
    weights: dict[str, Floats] = {}
    sources = []
    # A description divides scores by the root of the head's width; queries have the rest.
    factor = scores.factor * head_dim**0.5
    factor = 1.0 if abs(factor - 1) < 1e-6 else factor
    for name, tensor, columns, gain in (
        ("query", scores.query, scores.query_columns, factor),
        ("key", scores.key, scores.key_columns[::shared], 1.0),
        ("value", context.value, context.value_columns[::shared], 1.0),
    ):
        if not isinstance(tensor, Linear):
            raise UnsupportedError(f"node {tensor.node}: it gives a {name} but is no linear layer")
        chosen = replace(
            tensor,
            weight=gain * tensor.weight[columns.ravel()],
            bias=gain * tensor.bias[columns.ravel()],
        )
        weights |= _parameters(name, chosen)
        sources.append(tensor.source)
    if any(source is not sources[0] for source in sources):
        raise UnsupportedError(f"node {context.node}: it attends from one sequence to another")
    return weights, sources[0]


def _shared(keys: Index, values: Index) -> int:
    """Return the number of query heads that share each key head and value head."""
    heads = len(keys)
    for shared in range(heads, 0, -1):
        groups = np.arange(heads) // shared * shared
        if heads % shared == 0 and all(np.array_equal(c, c[groups]) for c in (keys, values)):
            return shared
    return 1


def _embedding(x: Tensor, weights: dict[str, Floats]) -> tuple[str, Tensor]:
    """Store the embedding's weights, and return its kind and its input."""
    positions = np.zeros((x.rows, x.columns))
    while isinstance(x, Shift | Prepend):
        if isinstance(x, Shift):
            positions[-x.rows :] += x.values
        else:
            weights["class_token"] = x.row
        x = x.source
    if positions.any():
        weights["positions"] = positions
    if isinstance(x, Affine) and isinstance(x.source, Input):
        x = as_linear(x)
    if isinstance(x, Linear) and isinstance(x.source, Input | Patches):
        weights |= _parameters("embed", x)
        return "linear", x.source
    if isinstance(x, Lookup):
        weights["words"] = x.table
        return "tokens", x.source
    if isinstance(x, Input):
        return "none", x
    raise UnsupportedError(
        f"node {x.node}: neither a block with attention and an MLP nor an embedding ends there"
    )
