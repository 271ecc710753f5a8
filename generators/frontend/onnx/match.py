"""Recognition of the blocks of a Transformer encoder in the computations of a graph."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.onnx.affine import as_linear
from celosia.generators.frontend.onnx.block import Block, padded_to_equal_shapes
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
from celosia.generators.reference.floats import FUNCTION_NAMES

NAMES = {theirs: ours for ours, theirs in FUNCTION_NAMES.items()}
"""Our name of each function."""


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
    """Input of the embedding; if ``prologue`` is set, the output of the embedding."""
    head_activation: str = ""
    prologue: str = ""
    """The value that the host computes instead of the embedding; empty if there is none."""
    name: str = ""
    """The value that this encoder computes, if it is not the graph's output."""

    def fields(self, name: str) -> dict[str, Any]:
        """Return settings of the model, such as ``dim`` and ``heads``: a dictionary by field name.

        The settings are fields that both :class:`ModelDescription` (of encoders) and
        :class:`TextDescription` (of decoders) have. ``name`` is the model's name.
        """
        first = self.blocks[0]
        return {
            "name": name,
            "dim": self.dim,
            "layers": len(self.blocks),
            "heads": first.heads,
            "kv_heads": first.kv_heads,
            "head_dim": first.head_dim,
            "ffn": len(first.weights.get("up.weight", ())),
            "norm": self.norm,
            "epsilon": self.epsilon,
            "placement": first.placement,
            "final_norm": "final_norm.weight" in self.weights,
            "activation": NAMES[first.activation] if first.activation else "gelu",
        }

    def tensors(self, name: str) -> dict[str, Floats]:
        """Return the encoder's weights: a dictionary from weight name to array.

        The names are those of a model description; the weights of the first block begin with
        ``layers.0``. ``name`` is the name of the model in error messages. Raises
        :class:`InputError` if an RMS norm has a bias that is not 0.
        """
        weights = dict(self.weights)
        for layer, block in enumerate(self.blocks):
            weights |= {f"layers.{layer}.{part}": value for part, value in block.weights.items()}
        if self.norm != "rmsnorm":
            return weights
        shifted = [k for k, v in weights.items() if k.endswith("norm.bias") and np.any(v != 0)]
        if shifted:
            raise InputError(f"Model {name} adds a bias behind its RMSNorm {shifted[0]}")
        return {k: v for k, v in weights.items() if not k.endswith("norm.bias")}


def match(output: View, names: Mapping[int, str]) -> Encoder:
    """Return the encoder whose result is ``output``, the graph's output or an intermediate value.

    ``names`` is a dictionary from ``id(tensor)`` to the name of the tensor's value in the graph.
    Raises :class:`UnsupportedError` if a tensor differs from an encoder's layers; the message
    usually names its node.
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
    blocks = padded_to_equal_shapes(blocks)
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
