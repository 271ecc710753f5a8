"""Instructions of an encoder's attention, for all tokens of a sequence in one run.

The queries of each head are divided into chunks of rows, so that their scores fit the memories.
"""

from collections.abc import Mapping

from celosia.generators.graph.operations import Attention
from celosia.generators.graph.tensors import rescale_of
from celosia.generators.lower.attention import Attended, Layout, Rows, pipeline
from celosia.generators.lower.blocks import cut, even, groups
from celosia.generators.lower.heads import Heads, with_one_softmax
from celosia.generators.lower.instructions import rescale_words
from celosia.generators.lower.lowering import SPARE_WORDS, Lowering
from celosia.generators.lower.residence import Words
from celosia.generators.lower.walk import Step
from celosia.generators.lower.windows import most_rows, span
from celosia.generators.program.draft import Node, Ref, Repeat
from celosia.generators.program.layout import aligned


def lower_attention(lowering: Lowering, step: Step) -> None:
    """Append the instructions of an encoder's attention to the program.

    ``step.op`` is the attention. ``step.label`` is the name of the scratchpad buffer for its
    requantization parameters. Raises :class:`FitError` if the parameter memory has too few words.
    """
    config, choices, op = lowering.config, lowering.choices, step.op
    assert isinstance(op, Attention)
    # Layers have as many parameter words each: heads are alike in all of them or in none.
    alike = all(other.alike for other in lowering.model.ops if isinstance(other, Attention))
    heads = op.heads[:1] if alike else op.heads
    if config.fused:
        # What a softmax takes in is scaled by the word before that of its probabilities.
        rescales = [r for head in heads for r in (op.scores, head.probabilities, head.context)]
    else:
        rescales = [op.scores, *(r for head in heads for r in (head.probabilities, head.context))]
    words, each = dict[str, Words](), 3 if config.fused else 2
    for head in range(len(op.heads)):
        first = SPARE_WORDS + (0 if alike else each * head)
        words[f"{op.prefix}.scores.{head}"] = Words(first, 2)
        words[f"{op.target.name}.{head}"] = Words(first + 2, 1)
    steps = SequenceAttention(lowering, op, words, alike=alike)
    if steps.gathers:
        words[f"{op.prefix}.copy.0"] = Words(SPARE_WORDS + len(rescales), 1)
        rescales.append(rescale_of(0, 1.0))
    lowering.memory.check_at_once(SPARE_WORDS + len(rescales) + 1)
    stage = lowering.stage
    stage.load(stage.begin_item(), step.label, rescale_words(config, *rescales).ravel())
    stage.add(lowering.bring(Ref(step.label), len(rescales), SPARE_WORDS))
    whole = steps.steps(range(len(op.heads)))
    stage.add(*(steps.loops() if choices.loop_heads else pipeline(*whole)))


class SequenceAttention(Heads):
    """Makes the instructions of an encoder's attention, for a group of query rows at a time.

    ``words`` has the locations of requantization parameters. ``alike`` is true if all heads have
    the same parameters.
    """

    def __init__(
        self, lowering: Lowering, op: Attention, words: Mapping[str, Words], *, alike: bool
    ):
        self.lowering, self.alike = lowering, alike
        tensors = op.query, op.key, op.value, op.target
        self.blocks = [lowering.blocks[tensor.buffer] for tensor in tensors]
        query, key, value, target = self.blocks
        m, n = (tensor.rows // lowering.batch for tensor in (op.query, op.key))
        room = max(1, lowering.choices.blob_bytes // (2 * aligned(n, lowering.config)))
        height = min(lowering.accumulators.height(m), room)
        height = even(m, most_rows(op, lowering.config, height))
        marks = {mark for blocks in (query, target) for mark in blocks.row_marks}
        marks |= {*range(0, op.query.rows, m)}
        marks |= {first + op.global_tokens for first in range(0, op.query.rows, m)}
        self.row_groups = groups(op.query.rows, marks, height)
        spans = {
            (row, count): span(op, lowering.config, n, row % m, count)
            for group in self.row_groups
            for row, count in group
        }
        layout = Layout(
            m=m,
            n=n,
            spans=spans,
            query=query,
            queries=[(head * op.key_dim, op.key_dim) for head in range(len(op.heads))],
            keys=Attended("keys", op.key, op.key_dim, key),
            values=Attended("values", op.value, op.head_dim, value),
            places={
                name: [Ref(f"{name}.{place}") for place in range(2)]
                for name in ("scores", "probabilities")
            },
            words=words,
            together=self._together(op, n, m, room),
            tiles=lowering.accumulators.tiles(height),
            odd=True,
        )
        super().__init__(lowering, op, layout)
        self.gathers = any(len(run) > 1 for keys in spans.values() for run in keys.runs)
        """True if keys and values of some runs are gathered."""
        size = layout.together * max(self.stride(part) * part[1] for part in spans)
        for scores, probabilities in zip(*layout.places.values(), strict=True):
            lowering.memory.buffer(scores.buffer, 2 * size)
            lowering.memory.buffer(probabilities.buffer, size)

    def _together(self, op: Attention, n: int, m: int, room: int) -> int:
        """Return the number of heads whose scores one softmax takes, concatenated.

        The heads have all of their rows, the same number in every inference, and the same
        parameters.
        """
        config, choices = self.lowering.config, self.lowering.choices
        shaped = any(head.diagonal is not None for head in op.heads)
        cut_rows = op.window > 0 or any(part[1] != m for group in self.row_groups for part in group)
        loops = choices.loop_heads or choices.loop_parts
        if cut_rows or shaped or loops or op.variable or not self.alike:
            return 1
        sums = config.accumulators.depth // 2 // -(-n // config.array.cols)
        return max(1, min(choices.together, min(room, sums) // m))

    def loops(self) -> list[Node]:
        """Return the instructions of all attention heads, as loops over the heads.

        Each loop computes successive heads whose columns are in the same scratchpad buffers. If
        query heads share key heads, an inner loop usually computes the query heads of one key head.
        """
        op, heads, head_dim = self.op, len(self.op.heads), self.op.head_dim
        marks = {
            mark // head_dim * (op.group if blocks in self.blocks[1:3] else 1)
            for blocks in self.blocks
            for mark in blocks.column_marks
        }
        nodes: list[Node] = []
        for first, count in cut(heads, marks):
            if count % op.group:
                nodes.append(Repeat([self._one_by_one(first + head) for head in range(count)]))
                continue
            groups = [
                [self._one_by_one(first + begin + head) for head in range(op.group)]
                for begin in range(0, count, op.group)
            ]
            nodes.append(
                Repeat([[Repeat(bodies)] if op.group > 1 else bodies[0] for bodies in groups])
            )
        return nodes

    def _one_by_one(self, head: int) -> list[Node]:
        """Return the steps of a head as a loop's body: each head's use the same accumulators."""
        if self.lowering.choices.loop_parts:
            return [
                node
                for group in self.row_groups
                for node in self.lowering.lower_parts(
                    group,
                    lambda row, m: [
                        *self.probabilities(with_one_softmax([Rows(head, row, m)])),
                        *self.contexts([Rows(head, row, m)]),
                    ],
                )
            ]
        self.lowering.accumulators.restart()
        return [*pipeline(*self.steps([head]))]
