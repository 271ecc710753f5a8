"""Division of a model into steps, which are compiled one after another.

A step is an operation and the rowwise operations after it, such as a norm or a conversion. A
rowwise operation computes each row of its result from only one row of its source.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from celosia.generators.graph.operations import Convert, Gate, Linear, Norm, Op, Rotary
from celosia.generators.graph.quantized import IntegerGraph

Rowwise = Norm | Convert | Rotary | Gate
"""Operations that work on each row of the previous result separately."""
Product = tuple[Linear, Sequence[Rowwise]]
"""A linear layer, and the operations after it."""
Fits = Callable[[Op, Sequence[Rowwise]], bool]
"""Condition for the operations that may be done directly after another."""


@dataclass(frozen=True)
class Step:
    """An operation of a model, with the rowwise operations that directly follow it.

    A rowwise operation, such as a norm, computes each row of its result from one row of its source.
    The instructions of all these operations are made together.
    """

    label: str
    """The section's name, and the operation's place in the section."""
    op: Op
    behind: tuple[Rowwise, ...] = ()


def steps(
    ops: Sequence[Op], fits: Fits = lambda op, behind: True, name: str = ""
) -> Iterator[Step]:
    """Divide successive operations into steps, and yield a :class:`Step` for each.

    A step is an operation and the rowwise operations directly after it, such as norms. A rowwise
    operation must keep the number of rows to join a step, and ``fits(first operation, rowwise
    operations)`` must be true. The steps' labels begin with ``name``.
    """
    place = 0
    while place < len(ops):
        op = ops[place]
        behind: list[Rowwise] = []
        for following in ops[place + 1 :]:
            if not isinstance(following, Rowwise) or following.target.rows != op.target.rows:
                break
            if not fits(op, [*behind, following]):
                break
            behind.append(following)
        yield Step(f"{name}.{place}", op, tuple(behind))
        place += 1 + len(behind)


def ending_ahead(graph: IntegerGraph) -> list[tuple[Op, ...]]:
    """Return a model's operations in sections: before the layers, each layer, after the layers.

    No section begins with a norm or a conversion of the residual stream. The function moves such an
    operation to the end of the previous section.
    """
    first, *rest = graph.before, *graph.layers, graph.after
    sections = [first]
    for ops in rest:
        moved = int(bool(ops) and isinstance(ops[0], Rowwise))
        sections[-1] += ops[:moved]
        sections.append(ops[moved:])
    return sections
