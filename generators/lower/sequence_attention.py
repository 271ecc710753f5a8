"""Lowering of attention over whole sequences: head by head, in chunks of rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Attention
from celosia.generators.graph.tensors import Tensor, rescale_of
from celosia.generators.lower.attention import WRITTEN, drain_context, mix, pipeline, score, softmax
from celosia.generators.lower.blocks import Blocks, Part, cut, even, groups
from celosia.generators.lower.instructions import View, Work, rescale_words
from celosia.generators.lower.lowering import SPARE_WORDS, Lowering
from celosia.generators.lower.windows import most_rows, span
from celosia.generators.program.draft import (
    LENGTH_REGISTER,
    Given,
    Item,
    Node,
    Ref,
    Repeat,
    Written,
)
from celosia.generators.program.layout import aligned


def lower_attention(lowering: Lowering, label: str, op: Attention) -> Item:
    """Return an item (instructions and loads) that computes all heads of an attention.

    The rows of the queries are processed in chunks whose scores fit the scratchpad and the
    accumulators. ``label`` is the name of the buffer for the requantization parameters.
    """
    config, choices = lowering.config, lowering.choices
    # Layers have as many parameter words each: heads are alike in all of them or in none.
    alike = all(other.alike for other in lowering.model.ops if isinstance(other, Attention))
    heads = op.heads[:1] if alike else op.heads
    if config.fused:
        # What a softmax takes in is scaled by the word before that of its probabilities.
        rescales = [r for head in heads for r in (op.scores, head.probabilities, head.context)]
    else:
        rescales = [op.scores, *(r for head in heads for r in (head.probabilities, head.context))]
    steps = _Steps(lowering, op, alike)
    if steps.gathers:
        rescales.append(rescale_of(0, 1.0))
        steps.identity = SPARE_WORDS + len(rescales) - 1
    lowering.memory.check_at_once(SPARE_WORDS + len(rescales) + 1)
    item = Item()
    lowering.stage.load(item, label, rescale_words(config, *rescales).ravel())
    item.body.append(lowering.bring(Ref(label), len(rescales), SPARE_WORDS))
    if choices.loop_heads:
        item.body += steps.loops()
    else:
        item.body += steps.pipeline(range(len(op.heads)))
    return item


WIDE_PRODUCTS = (("a_wide", "b_high"), ("a_wide", "b_low"))
"""Flags of the two products of INT16 queries and keys."""
Unit = tuple[int, int, int]
"""A head, and the first and count of some of its rows."""


class _Steps:
    """The instructions of an attention, head by head and some rows at a time."""

    def __init__(self, lowering: Lowering, op: Attention, alike: bool):
        self.lowering, self.op, self.alike = lowering, op, alike
        self.query, self.key, self.value, self.target = (
            lowering.blocks[tensor.buffer] for tensor in (op.query, op.key, op.value, op.target)
        )
        self.n = op.key.rows // lowering.batch
        """Keys of a sequence."""
        self.m = op.query.rows // lowering.batch
        """Queries of a sequence."""
        room = max(1, lowering.choices.blob_bytes // (2 * aligned(self.n, lowering.config)))
        height = min(lowering.accumulators.height(self.m), room)
        height = even(self.m, most_rows(op, lowering.config, height))
        marks = {mark for blocks in (self.query, self.target) for mark in blocks.row_marks}
        marks |= {*range(0, op.query.rows, self.m)}
        marks |= {first + op.global_tokens for first in range(0, op.query.rows, self.m)}
        self.row_groups = groups(op.query.rows, marks, height)
        self.spans = {
            row: span(op, lowering.config, self.n, row % self.m, m)
            for group in self.row_groups
            for row, m in group
        }
        """The keys of each group of rows."""
        runs = [run for keys in self.spans.values() for run in keys.runs]
        self.gathers = max((len(run) for run in runs), default=0) > 1
        """True if keys and values of some runs are gathered."""
        self.identity = 0
        """The parameter word that copies."""
        self.tiles = lowering.accumulators.tiles(height)
        self.together = self._together(room)
        for parity in range(2):
            size = max(
                self._stride(row) * m * self.together
                for group in self.row_groups
                for row, m in group
            )
            lowering.memory.buffer(f"scores.{parity}", 2 * size)
            lowering.memory.buffer(f"probabilities.{parity}", size)
        # Sums over several blocks of values take all of the probabilities, because those after an
        # inference's last row must be zero there.
        self.counted = len(self.value.row_marks) == 1

    def _together(self, room: int) -> int:
        """Return the number of heads whose scores one softmax takes, concatenated.

        The heads have all of their rows, the same number in every inference, and the same
        parameters.
        """
        op, config, choices = self.op, self.lowering.config, self.lowering.choices
        shaped = any(head.diagonal is not None for head in op.heads)
        cut_rows = op.window > 0 or any(m != self.m for group in self.row_groups for _, m in group)
        loops = choices.loop_heads or choices.loop_parts
        if cut_rows or shaped or loops or op.variable or not self.alike:
            return 1
        sums = config.accumulators.depth // 2 // -(-self.n // config.array.cols)
        return max(1, min(choices.together, min(room, sums) // self.m))

    def _stride(self, row: int) -> int:
        """Return the bytes from row to row of probabilities, and half of those of scores."""
        return aligned(self.spans[row].columns, self.lowering.config)

    def pipeline(self, heads: Sequence[int]) -> list[Node]:
        """Return steps such that products run beside the softmax of the previous step."""
        sequences: dict[int, list[Part]] = {}
        for row, m in (part for group in self.row_groups for part in group):
            sequences.setdefault(row // self.m, []).append((row, m))
        units = [
            (head, row, m) for parts in sequences.values() for head in heads for row, m in parts
        ]
        steps = [units[at : at + self.together] for at in range(0, len(units), self.together)]
        order = pipeline(
            [
                partial(self._probabilities, step, at % 2, steps[at + 1 : at + 2])
                for at, step in enumerate(steps)
            ],
            [partial(self._values, step, at % 2) for at, step in enumerate(steps)],
        )
        nodes = [node for step in steps[:1] for node in self._gathered("keys", step[0], 0)]
        return [*nodes, *(node for make in order for node in make())]

    def loops(self) -> list[Node]:
        """Return a loop over the heads of each block, and in it over those that share keys."""
        op, heads, head_dim = self.op, len(self.op.heads), self.op.head_dim
        marks = {
            mark // head_dim * (op.group if blocks in (self.key, self.value) else 1)
            for blocks in (self.query, self.key, self.value, self.target)
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
                for node in self.lowering.each(
                    group,
                    lambda row, m: [
                        *self._gathered("keys", (head, row, m), 0),
                        *self._probabilities([(head, row, m)], 0),
                        *self._values([(head, row, m)], 0),
                    ],
                )
            ]
        self.lowering.accumulators.restart()
        return self.pipeline([head])

    def _probabilities(
        self, units: Sequence[Unit], parity: int, following: Sequence[Sequence[Unit]] = ()
    ) -> list[Node]:
        """Return scores and softmax of some heads' rows, concatenated.

        Before the softmax, the values of this step and keys of the ``following`` one are gathered.
        """
        op, config = self.op, self.lowering.config
        head, row, _ = units[0]
        span, stride = self.spans[row], self._stride(row)
        n = span.columns
        total = sum(m for _, _, m in units)
        scores, probabilities = f"scores.{parity}", f"probabilities.{parity}"
        nodes: list[Node] = []
        (columns,) = groups(n, (), self.tiles, config.array.cols)
        fused = config.fused is not None and len(columns) == 1
        # Tile columns that are read in turns lie at rows of either parity.
        acc_stride = total | 1 if fused else total
        rows = self._rows(row, total)
        for column, count in columns:
            acc = self.lowering.accumulators.take(acc_stride * -(-count // config.array.cols))
            sums = View(acc, acc_stride)
            nodes += self._scores(units, acc, acc_stride, column, count, parity)
            if fused:
                break
            written = self._written("scores", units, column, count)
            part, keys = View(Ref(scores, 2 * column), 2 * stride), self._keys(column, count)
            defines = "" if column else scores
            work = Work(sums, part, rows, keys, SPARE_WORDS, written, defines)
            nodes.append(work.requantize(Opcode.DRAIN, *WRITTEN))
        written = self._written("probabilities", units, 0, n)
        target, keys = View(Ref(probabilities), stride), self._keys(0, n)
        source, flags = (sums, ("drain",)) if fused else (View(Ref(scores), 2 * stride), ())
        nodes += self._gathered("values", units[0], parity)
        for step in following:
            nodes += self._gathered("keys", step[0], 1 - parity)
        limit = Given(LENGTH_REGISTER, n) if op.variable else span.limit
        word, first = self._word(head) - fused, row % self.m
        work = Work(source, target, rows, keys, word, written, probabilities)
        moves = (span.start, span.step)
        nodes.append(
            softmax(
                op, head, work, *flags, limit=limit, limit_step=span.step, start=moves, row=first
            )
        )
        return nodes

    def _scores(
        self, units: Sequence[Unit], acc: int, acc_stride: int, column: int, count: int, parity: int
    ) -> list[Node]:
        """Return the products of queries and some keys."""
        op, cols = self.op, self.lowering.config.array.cols
        nodes: list[Node] = []
        for head, row, m in units:
            query = self.query.view(row, head * op.head_dim)
            bytes_of_keys = WIDE_PRODUCTS if op.key.wide else ((),)
            run = self._rows(row, m)
            for place, key, some in self._runs(row, column, count):
                keys, many = self._operand("keys", head, row, key, parity), self._keys(key, some)
                sums = View(acc + (place - column) // cols * acc_stride, acc_stride)
                nodes += [
                    score(op, query, keys, sums, run, many, *flags) for flags in bytes_of_keys
                ]
            acc += m
        return nodes

    def _written(self, name: str, units: Sequence[Unit], column: int, count: int) -> Written:
        """Return the parts of scores or probabilities that one instruction writes."""
        name = f"{self.op.prefix}.{name}"
        span = self.spans[units[0][1]]
        pieces = span.pieces if len(span.pieces) > 1 else ()
        column += 0 if pieces else span.pieces[0][0]
        first, *rest = (
            Written(name, row, m, column, count, head, pieces=pieces) for head, row, m in units
        )
        return replace(first, below=tuple(rest))

    def _values(self, units: Sequence[Unit], parity: int) -> list[Node]:
        """Return the sums of values by their probabilities, drained together if possible."""
        op, config = self.op, self.lowering.config
        nodes: list[Node] = []
        offset = 0
        while units:
            _, row, m = units[0]
            tiles, rest = divmod(op.head_dim, config.array.cols)
            most = 1 if rest else max(1, self.lowering.accumulators.tiles(m) // tiles)
            own = [unit for unit in units if unit[1] == row][:most]
            # Heads beside each other, in one block of columns.
            stop = next(
                (
                    index
                    for index, (head, _, _) in enumerate(own[1:], 1)
                    if head * op.head_dim in self.target.column_marks
                ),
                len(own),
            )
            nodes += self._contexts(own[:stop], parity, offset)
            offset += m * stop
            units = units[stop:]
        return nodes

    def _contexts(self, units: Sequence[Unit], parity: int, offset: int) -> list[Node]:
        """Return the contexts of heads beside each other, whose probabilities begin at a row."""
        op, config = self.op, self.lowering.config
        first, row, m = units[0]
        nodes: list[Node] = []
        sequence, stride = row // self.m * self.n, self._stride(row)
        marks = {mark - sequence for mark in self.value.row_marks}
        (parts,) = groups(op.head_dim, (), self.tiles, config.array.cols)
        for column, count in parts:
            tiles = -(-count // config.array.cols)
            acc = self.lowering.accumulators.take(m * tiles * len(units))
            for index, (head, _, _) in enumerate(units):
                for start, key, k in self._runs(row, 0, self.spans[row].columns, marks):
                    begin = (offset + index * m) * stride + start
                    place = Ref(f"probabilities.{parity}", begin)
                    values = self._operand("values", head, row, key, parity, column)
                    sums, many = View(acc + index * tiles * m, m), self._keys(key, k)
                    run = self._rows(row, m)
                    nodes.append(mix(op, View(place, stride), values, sums, run, many, count))
            rows, columns = (row, m), (first * op.head_dim + column, count * len(units))
            sums, run, word = View(acc, m), self._rows(row, m), self._word(first) + 1
            anew = not op.residual
            work = self.lowering.work(sums, op.target, rows, columns, run, word, anew=anew)
            nodes.append(drain_context(op, work, "per_tensor"))
        return nodes

    def _runs(
        self, row: int, column: int, count: int, marks: Iterable[int] = ()
    ) -> Iterator[tuple[int, int, int]]:
        """Yield (column, key, columns) of runs inside some columns, cut at the rows ``marks``.

        The key is the first one's row, or ``~row`` of a gathered run.
        """
        begin, gathered, end = 0, 0, column + count
        for run in self.spans[row].runs:
            first, total = run[0][0], sum(some for _, some in run)
            for key, k in cut(total, {mark - first for mark in marks} if not run[1:] else ()):
                low, high = max(begin + key, column), min(begin + key + k, end)
                if low < high:
                    inside = low - begin
                    yield low, ~(gathered + inside) if run[1:] else first + inside, high - low
            begin += total
            gathered += total if run[1:] else 0

    def _operand(
        self, name: str, head: int, row: int, key: int, parity: int, column: int = 0
    ) -> View:
        """Return a head's keys or values from a row on, or from row ``~key`` of gathered ones."""
        op = self.op
        tensor, blocks = self._tensor(name)
        if key < 0:
            stride = op.head_dim * tensor.element
            place = Ref(f"{name}_gathered.{parity}", ~key * stride + column * tensor.element)
            return View(place, stride)
        return blocks.view(row // self.m * self.n + key, head // op.group * op.head_dim + column)

    def _gathered(self, name: str, unit: Unit, parity: int) -> list[Node]:
        """Return the copies of keys or values that some rows need below each other."""
        (head, row, _), width = unit, self.op.head_dim
        tensor, blocks = self._tensor(name)
        buffer, stride, place = f"{name}_gathered.{parity}", width * tensor.element, 0
        base = row // self.m * self.n
        nodes: list[Node] = []
        for first, count in (piece for run in self.spans[row].runs if run[1:] for piece in run):
            for inner, m in cut(count, {mark - base - first for mark in blocks.row_marks}):
                source = self._operand(name, head, row, first + inner, parity)
                target = View(Ref(buffer, place * stride), stride)
                written = Written(f"{self.op.prefix}.{name}_gathered")
                defines = "" if place else buffer
                work = Work(source, target, m, width, self.identity, written, defines)
                wide = ("wide_in", "wide_out") if tensor.wide else ()
                nodes.append(work.requantize(Opcode.MAP, "per_tensor", *wide))
                place += m
        if place:
            self.lowering.memory.buffer(buffer, stride * place)
        return nodes

    def _tensor(self, name: str) -> tuple[Tensor, Blocks]:
        """Return the keys or the values, and their blocks."""
        return (self.op.key, self.key) if name == "keys" else (self.op.value, self.value)

    def _rows(self, row: int, m: int) -> int | Given:
        """Return the number of some queries in an inference."""
        return self.lowering.run_rows(row, m, self.op.query.rows)

    def _keys(self, key: int, count: int) -> int | Given:
        """Return the number of some keys in an inference."""
        return self.lowering.run_rows(key, count, self.op.key.rows) if self.counted else count

    def _word(self, head: int) -> int:
        """Return the parameter word of a head's probabilities; its context's follows."""
        words = 3 if self.lowering.config.fused else 2
        return SPARE_WORDS + 1 + (0 if self.alike else words * head)
