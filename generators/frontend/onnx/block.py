"""Transformer blocks (attention and MLP) that were recognized in an ONNX graph.

If the blocks' weights have different shapes, :func:`padded_to_equal_shapes` extends the smaller
weights with zeros.
"""

from dataclasses import dataclass, replace

import numpy as np

from celosia.generators.frontend.onnx.values import Norm, Tensor, UnsupportedError
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


def padded_to_equal_shapes(blocks: list[Block]) -> list[Block]:
    """Return Transformer blocks whose weights are padded with zeros to equal shapes.

    All blocks get the largest number of heads, head columns and hidden columns. Their outputs do
    not change. Raises :class:`UnsupportedError` if another shape or a setting differs between
    blocks.
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
