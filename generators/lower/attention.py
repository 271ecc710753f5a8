"""Attention's instructions and their order, for whole sequences and for a cache.

The caller chooses the places of operands, sums and parameters.
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
    """Return the order of steps: products of one run beside the softmax of the previous one.

    ``contexts`` uses the results of ``probabilities`` at the same or an earlier place.
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
    """Return the product of a head's queries and some keys: rows, or columns from a slot on.

    Queries begin with ``above`` zeros, one for each place of the slot above their keys.
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
    row: int = 0,
) -> Draft:
    """Return the softmax of a head's scores, or with the flag ``drain`` of their sums.

    ``row`` is the first row's place in its sequence.
    """
    diagonal = op.heads[head].diagonal
    return work.softmax(
        *(() if diagonal is None else ("diagonal",)),
        *(("factors",) if op.deferred else ()),
        *flags,
        limit=limit,
        limit_step=limit_step,
        zero=op.probability_zero,
        diagonal=(0, 0) if diagonal is None else (row, diagonal),
    )


def drain_context(op: Attention, work: Work, *flags: str) -> Draft:
    """Return the requantization of sums of values to columns of the context."""
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
    """Return the product of a head's probabilities and some columns of its values."""
    zeros = {"a_zero": op.probability_zero, "b_zero": op.value.zero}
    return product(probabilities, values, sums, m, k, n, *flags, **zeros)
