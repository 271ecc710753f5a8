"""Classes that describe an attention: the addresses of its data, and the order of instructions.

:class:`Layout` has the addresses of queries, keys and values, and the keys to which each query
attends. :class:`Step` has the order of products and softmaxes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.blocks import Blocks, Part
from celosia.generators.lower.instructions import Count
from celosia.generators.lower.residence import Words
from celosia.generators.lower.windows import Span
from celosia.generators.program.draft import Draft, Ref

Steps = list[Callable[[], Iterator[Draft]]]
"""Functions that make instructions, in this order."""


def pipeline(probabilities: Steps, contexts: Steps) -> Iterator[Draft]:
    """Yield the instructions of an attention so that products run during softmaxes.

    The order is probabilities 0 and 1, contexts 0, probabilities 2, contexts 1, and so on. Contexts
    i must use only probabilities 0 to i.
    """
    for step in chain(probabilities[:1], *zip_longest(probabilities[1:], contexts)):
        if step is not None:
            yield from step()


@dataclass(frozen=True)
class Rows:
    """Query rows of one product.

    Usually the rows belong to one head. If several heads share their keys, the product may instead
    have one row of each of these heads.
    """

    head: int
    """The head, or the first of several heads."""
    first: int
    """The first row of the queries."""
    count: int
    """Number of rows; a run may have fewer."""
    heads: int = 1
    """Number of heads whose queries are rows of one product."""
    place: int = 0
    """Number of the place of scores and probabilities."""
    at: int = 0
    """The row of this place at which their scores and probabilities begin."""

    @property
    def part(self) -> Part:
        """Range of query rows: (first row, number of rows)."""
        return self.first, self.count

    @property
    def total(self) -> int:
        """Number of rows of scores: one for each query row in each head."""
        return self.count * self.heads


@dataclass(frozen=True)
class Softmax:
    """One softmax instruction of an attention, and the rows of scores that it reads.

    A row has the scores of one query in one head. The rows may be of several heads.
    """

    rows: Sequence[Rows]
    flags: tuple[str, ...] = ()
    """Flags of the instruction."""


@dataclass(frozen=True)
class Step:
    """A part of an attention that computes the probabilities of some heads.

    Products of queries and keys give scores, from which softmaxes compute probabilities.
    """

    order: Sequence[Rows | Softmax | Callable[[], None]]
    """Rows whose scores are multiplied, softmaxes of these scores, and functions that add other
    instructions, in the order of the program."""
    total: int
    """Rows of scores in their place."""


@dataclass(frozen=True)
class Attended:
    """Location of one operand of attention, the keys or the values, for all heads.

    If :attr:`slots` is empty, instructions read rows in the scratchpad. Otherwise they read weight
    slots (storage in the array for one weight tile each).
    """

    name: str
    """``keys`` or ``values``."""
    tensor: Tensor
    width: int
    """Columns of a head."""
    blocks: Blocks
    """Their rows in the scratchpad."""
    slots: Sequence[Sequence[tuple[int, frozenset[str]]]] = ()
    """First weight slot of each tile column of each key head, and the flags that select the head in
    the slot; empty if the rows in the scratchpad are read."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Addresses and sizes of an attention's operands and results."""

    m: int
    """Queries of a sequence."""
    n: int
    """Keys of a sequence."""
    spans: Mapping[Part, Span]
    """The keys of each part (first, count) of the rows, in order."""
    query: Blocks
    queries: Sequence[Part]
    """First column of each head's queries, and the columns that are multiplied."""
    keys: Attended
    values: Attended
    places: Mapping[str, Sequence[Ref]]
    """Places of requantized ``scores`` and of ``probabilities``, which steps use in turn."""
    words: Mapping[str, Words]
    """Parameters of scores, with those of probabilities after them, and of contexts: by tensor and
    head. If keys or values are gathered, those that copy them are the word ``copy``."""
    together: int = 1
    """Heads whose scores one softmax takes, if they are not rows of one product."""
    tiles: int
    """Most tile columns of sums at once."""
    odd: bool
    """True if the tile columns of sums begin at even and odd rows in turn, for a softmax that reads
    them in turn."""
    beside: bool = True
    """True if contexts of heads are drained side by side, as columns."""
    by_row: bool = False
    """True if rows of other contexts, each another head's, are drained together."""
    seen: Count | None = None
    """Number of keys; None if each run has a key for each of its rows."""
    sums: str = "scores"
    """First part of the name of the sums of scores."""
    row: int = 0
    """Row of the first row in the buffers of queries and contexts."""
    factor: int = 0
    """Number of the first head's factor, if softmaxes leave their division to the contexts."""
