"""Why a graph is not run: what it holds that has no place on the machine, and what to do."""

import re
from typing import Any

from generators.frontend.onnx.values import UnsupportedError

_ROTARY = "rotary positions", "use the model's Hugging Face folder with celosia text"
_KINDS = {
    "LSTM": ("a recurrent layer (LSTM)", "use a Transformer encoder in its place"),
    "GRU": ("a recurrent layer (GRU)", "use a Transformer encoder in its place"),
    "RNN": ("a recurrent layer", "use a Transformer encoder in its place"),
    "BatchNormalization": (
        "batch normalization",
        "fold it into the layer before it, which torch.onnx.export does in eval mode",
    ),
    "QuantizeLinear": ("integers already", "export the model in floating point"),
    "DequantizeLinear": ("integers already", "export the model in floating point"),
    "MatMulInteger": ("integers already", "export the model in floating point"),
    "RotaryEmbedding": _ROTARY,
    "If": ("a branch that depends on data", "export the model with fixed shapes"),
    "Loop": ("a loop over data", "export the model with fixed shapes"),
    "TopK": ("a selection by data", "leave it out of the exported model"),
    "GroupQueryAttention": (
        "attention as one fused node",
        "export the model itself, not what another tool optimized",
    ),
    "MultiHeadAttention": (
        "attention as one fused node",
        "export the model itself, not what another tool optimized",
    ),
    "Attention": ("attention as one node", "export with an opset below 23"),
}
"""Name and remedy for nodes of each kind."""
_REASONS = (
    ("attends from one sequence to another", "cross-attention",
     "export encoder and decoder apart, or leave the decoder out"),
    ("other keys than those of missing tokens", "an attention mask that is neither causal nor of "
     "missing tokens", "leave the mask out, or give it as an input [batch, tokens]"),
    ("combines data other than as the sum", "a product of two layers (a gated MLP), or other data "
     "that is multiplied", "use an MLP without a gate; gated ones are for language models"),
    ("attention before it that is in no block", "blocks that are not alike, or not known",
     "use blocks that are alike"),
    ("it gives a query but is no linear", "queries that are rotated or normalized",
     "use the model's Hugging Face folder with celosia text"),
    ("it gives a key but is no linear", "keys that are rotated or normalized",
     "use the model's Hugging Face folder with celosia text"),
    ("a function that is none of", "an activation that is not known",
     "use one of those that are listed"),
    ("has another shape than block 0", "blocks of different shapes",
     "use blocks that are alike"),
    ("norms differ in their kind or epsilon", "norms of different kinds",
     "use one kind and one epsilon for all"),
    ("it is not taken of products of queries", "attention to constants or to another sequence "
     "(cross-attention)", "export the encoder alone"),
    ("not the end of a block with attention", "no Transformer block at its end",
     "export the encoder with its head, and nothing behind that attends"),
)  # fmt: skip
_SHOWN = 4


def explain(graph: Any, reasons: list[str], error: UnsupportedError | None) -> str:
    """Return what in a graph is not run, with a remedy, and the nodes at fault."""
    kinds = {node.op_type for node in graph.model.graph.node}
    text = [*reasons, *([str(error)] if error is not None else [])]
    things = [f"it holds {thing}; {remedy}" for kind, (thing, remedy) in _KINDS.items()
              if kind in kinds]  # fmt: skip
    if _turns_halves(graph):
        things.append(f"it holds {_ROTARY[0]}; {_ROTARY[1]}")
    if not things:
        for sign, thing, remedy in _REASONS:
            if any(sign in one for one in text):
                things.append(f"it holds {thing}; {remedy}")
    if not things and "Softmax" not in kinds:
        things.append("it holds no attention; give a Transformer encoder")
    if not things:
        things.append("it holds parts that are not those of an encoder; see the nodes")
    shown = [re.sub(r"\s+", " ", one) for one in text[:_SHOWN]]
    more = len(text) - len(shown)
    nodes = "; ".join(shown) + (f"; and {more} more" if more else "")
    return f"{things[0]} ({nodes})"


def _turns_halves(graph: Any) -> bool:
    """Return whether a half that is negated is joined with another, as a rotation's columns are."""
    nodes = graph.model.graph.node
    negated = {name for node in nodes if node.op_type == "Neg" for name in node.output}
    return any(node.op_type == "Concat" and negated & set(node.input) for node in nodes)
