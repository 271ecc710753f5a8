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
    """Return the steps of ``probabilities`` and ``contexts`` in one list.

    They are interleaved so that products run during softmaxes: probabilities 0, probabilities 1,
    contexts 0, probabilities 2, contexts 1, and so on. Step i of ``probabilities`` computes scores
    and their softmax. Step i of ``contexts`` multiplies values by results of ``probabilities`` up
    to step i.
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
    """Return the instruction that multiplies ``m`` queries of a head by ``n`` keys.

    The products are written to the accumulators at ``sums``. ``names`` are additional flags of the
    instruction. ``keys`` is a scratchpad view with one key in each row, or the number of the first
    of the weight slots that hold the keys as columns. A weight slot is storage in the array for one
    weight tile.

    A slot may hold the keys of several heads, one head below the other. ``above`` is the number of
    slot rows above this head's keys. Each row of ``query`` must begin with ``above`` zeros, which
    are multiplied by the other heads' keys.
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
    """Return the instruction that computes the softmax of a head's scores.

    If ``flags`` contains ``drain``, the instruction reads the scores from the accumulators. If not,
    it reads requantized scores from the scratchpad. ``row`` is the column of the first token's
    score with itself, in the first row of scores. Only shaped attention uses it: it adds a number
    to each token's score with itself. The other arguments are those of :meth:`Work.softmax`.
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
    """Return the instruction that requantizes a context, the sums of values times probabilities."""
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
    """Return the instruction that multiplies a head's probabilities by ``n`` columns of values.

    The products are written to the accumulators at ``sums``. ``values`` is a view of ``k`` rows in
    the scratchpad, or the number of the first weight slot that holds these values.
    """
    zeros = {"a_zero": op.probability_zero, "b_zero": op.value.zero}
    return product(probabilities, values, sums, m, k, n, *flags, **zeros)
