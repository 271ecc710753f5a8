"""Operations of a decoder that become one instruction of the vector engine together.

Queries and keys are rotated, and the up projection multiplied by the gate, as their sums are
drained, so these operations belong to the linear layer in front of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from generators.graph import Attention, Convert, Decoder, Gate, Ints, Linear, Norm, Op, Rescale


@dataclass(frozen=True, kw_only=True)
class Block:
    """The operations of a layer by what they are."""

    attention_norm: Norm
    key: Linear
    query: Linear
    value: Linear
    kept_key: Convert | None
    """From rotated keys in INT16 to those that are kept in fewer bits."""
    attention: Attention
    output: Linear
    mlp_norm: Norm
    gate: Linear | None
    """None where the MLP has no gate."""
    up: Linear
    down: Linear

    @property
    def linears(self) -> dict[str, Linear]:
        """The linear layers by name, in the order in which they are used."""
        found = {
            "key": self.key,
            "query": self.query,
            "value": self.value,
            "output": self.output,
            "gate": self.gate,
            "up": self.up,
            "down": self.down,
        }
        return {name: op for name, op in found.items() if op is not None}

    @property
    def table(self) -> Ints:
        """The activation's table, [256]."""
        found = (self.up if self.gate is None else self.gate).table
        assert found is not None
        return found

    @property
    def context(self) -> Rescale:
        """From sums over probabilities and values to the context, of each column, [columns]."""
        parts = [head.context for head in self.attention.heads]
        return Rescale(
            *(
                np.concatenate([getattr(one, name) for one in parts])
                for name in ("bias", "multiplier", "shift")
            )
        )


def blocks(decoder: Decoder) -> list[Block]:
    """Return the layers of a decoder."""
    return [_block(ops) for ops in decoder.layers]


def final_norm(decoder: Decoder) -> Norm:
    """Return the norm in front of the head."""
    (found,) = (op for op in decoder.after if isinstance(op, Norm))
    return found


def head(decoder: Decoder) -> Linear:
    """Return the linear layer that gives the scores of all tokens."""
    (found,) = (op for op in decoder.after if isinstance(op, Linear))
    return found


def linears(decoder: Decoder) -> dict[str, Linear]:
    """Return all linear layers by name, in the order in which they are used."""
    found: dict[str, Linear] = {}
    for index, block in enumerate(blocks(decoder)):
        found |= {f"layers.{index}.{name}": op for name, op in block.linears.items()}
    return found | {"head": head(decoder)}


def _block(ops: Sequence[Op]) -> Block:
    linear = {
        op.target.name.rpartition(".")[2].removesuffix("_sums"): op
        for op in ops
        if isinstance(op, Linear)
    }
    norms = [op for op in ops if isinstance(op, Norm)]
    (attention,) = (op for op in ops if isinstance(op, Attention))
    kept = next((op for op in ops if isinstance(op, Convert)), None)
    gated = any(isinstance(op, Gate) for op in ops)
    return Block(
        attention_norm=norms[0],
        key=linear["key"],
        query=linear["query"],
        value=linear["value"],
        kept_key=kept,
        attention=attention,
        output=linear["attention_sum"],
        mlp_norm=norms[1],
        gate=linear.get("active"),
        up=linear["up"] if gated else linear["hidden"],
        down=linear["mlp_sum"],
    )
