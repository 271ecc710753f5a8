"""Instructions of attention, for whole sequences and for a KV cache.

The caller chooses the addresses of operands, sums and parameters.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeVar

from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Attention
from celosia.generators.lower.instructions import Count, View, Work, product
from celosia.generators.program.draft import Draft

T = TypeVar("T")
WRITTEN = ("wide_out", "per_tensor")
"""Flags of the drain of scores to the scratchpad, if no softmax reads their sums."""


def pipeline(probabilities: Sequence[T], contexts: Sequence[T]) -> list[T]:
    """Return steps in the order in which a product runs beside the previous step's softmax.

    Each step of ``contexts`` uses results of ``probabilities`` with the same or a lower index.
    """
    order: list[T] = [*probabilities[:1]]
    for ahead, behind in zip_longest(probabilities[1:], contexts):
        order += [step for step in (ahead, behind) if step is not None]
    return order


def score(
    op: Attention,
    query: View,
    keys: View | int,
    sums: View,
    m: Count,
    n: Count,
    *names: str,
    above: int = 0,
) -> Draft:
    """Return the product of a head's queries and keys; keys are rows, or columns in slots.

    Queries begin with ``above`` zeros, one for each slot row above the keys.
    """
    flags = names if isinstance(keys, int) else ("b_transpose", *names)
    zeros = {"a_zero": op.query.zero, "b_zero": op.key.zero}
    return product(query, keys, sums, m, above + op.key_dim, n, *flags, **zeros)


def softmax(
    op: Attention,
    head: int,
    work: Work,
    *flags: str,
    limit: Count,
    limit_step: int = 0,
    start: tuple[int, int] = (0, 0),
    row: int = 0,
) -> Draft:
    """Return the softmax of a head's scores, or of their sums with the flag ``drain``.

    ``row`` is the first row's index in the sequence.
    """
    diagonal = op.heads[head].diagonal
    return work.softmax(
        *(() if diagonal is None else ("diagonal",)),
        *(("factors",) if op.deferred else ()),
        *flags,
        limit=limit,
        limit_step=limit_step,
        start=start,
        zero=op.probability_zero,
        diagonal=(0, 0) if diagonal is None else (row, diagonal),
    )


def drain_context(op: Attention, work: Work, *flags: str) -> Draft:
    """Return the requantization of a context's sums to the context's columns."""
    return work.requantize(Opcode.DRAIN, *flags, tensor=op.target, residual=op.residual)


def mix(
    op: Attention,
    probabilities: View,
    values: View | int,
    sums: View,
    m: Count,
    k: Count,
    n: int,
    *flags: str,
) -> Draft:
    """Return the product of a head's probabilities and some columns of the head's values."""
    zeros = {"a_zero": op.probability_zero, "b_zero": op.value.zero}
    return product(probabilities, values, sums, m, k, n, *flags, **zeros)
