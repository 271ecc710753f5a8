"""What attention is to be computed: its operands, and what each query sees."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MASKS = ("none", "causal", "window", "padding", "block")


@dataclass(frozen=True)
class Window:
    """Query rows that see a window of keys: row i of them from start to limit, each moving."""

    row: int
    rows: int
    key: int
    keys: int
    start: int
    start_step: int
    limit: int
    limit_step: int


def windows(mask: str, seq: int, span: int) -> list[Window]:
    """Return the windows of a mask over ``seq`` queries and as many keys.

    ``span`` is how many keys a query sees back with ``window``, itself included, how many keys are
    not padding with ``padding``, and how many tokens a sequence has with ``block``: sequences
    packed one after the other, each seeing itself only.
    """
    if mask == "block":
        firsts = range(0, seq, span)
        sizes = [min(span, seq - first) for first in firsts]
        return [
            Window(first, size, first, size, 0, 0, size, 0)
            for first, size in zip(firsts, sizes, strict=True)
        ]
    start, start_step = (1 - span, 1) if mask == "window" else (0, 0)
    if mask in ("causal", "window"):
        return [Window(0, seq, 0, seq, start, start_step, 1, 1)]
    return [Window(0, seq, 0, seq, 0, 0, span if mask == "padding" else seq, 0)]


@dataclass(frozen=True, kw_only=True)
class AttentionProblem:
    """Attention of every query head over its key head, INT8.

    ``q`` is [heads, seq, head_dim], ``k`` and ``v`` are [key heads, seq, head_dim]; query head h
    takes key head ``h // (heads // key heads)``. The score of a product is its sum times
    ``score_scale``, in octaves; the output is the context, in steps of ``v``, times
    ``output_scale``.
    """

    q: Ints
    k: Ints
    v: Ints
    q_zero: int
    k_zero: int
    v_zero: int
    o_zero: int
    score_scale: float
    output_scale: float
    mask: str
    span: int

    @property
    def heads(self) -> int:
        """Query heads."""
        return int(self.q.shape[0])

    @property
    def seq(self) -> int:
        """Queries, and keys."""
        return int(self.q.shape[1])

    @property
    def head_dim(self) -> int:
        """Elements of a query, key or value."""
        return int(self.q.shape[2])

    @property
    def group(self) -> int:
        """Query heads to a key head."""
        return self.heads // int(self.k.shape[0])

    @property
    def windows(self) -> list[Window]:
        """What the queries see."""
        return windows(self.mask, self.seq, self.span)
