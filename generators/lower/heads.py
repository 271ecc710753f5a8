"""Instructions that compute an attention's scores, probabilities and contexts (weighted values)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from celosia.arch.isa import Opcode
from celosia.generators.graph.operations import Attention
from celosia.generators.lower.attention import Attended, Layout, Rows, Softmax, Step, Steps
from celosia.generators.lower.blocks import Part, cut, groups, parts
from celosia.generators.lower.instructions import Count, View, Work, factored, product
from celosia.generators.lower.plan import context_of, runs
from celosia.generators.lower.plan import part as columns_of
from celosia.generators.lower.rules import Rules
from celosia.generators.program.draft import Draft, Ref, Written
from celosia.generators.program.layout import aligned


class Heads:
    """Makes the instructions that compute the heads of an attention.

    A subclass chooses the memory layout of queries, keys and values. It also chooses the query rows
    that are processed together.
    """

    def __init__(self, rules: Rules, op: Attention, layout: Layout):
        self.rules, self.op, self.layout = rules, op, layout
        self.config, self.context = rules.config, context_of(op)
        self.runs = runs(op.scores, len(op.heads))
        """Heads (first, count) whose scores have the same parameters."""
        # Sums over several blocks of values take all of the probabilities, because those after an
        # inference's last row must be zero there.
        self.counted = len(layout.values.blocks.row_marks) == 1

    def stride(self, part: Part) -> int:
        """Return the row stride (bytes) of attention probabilities in the scratchpad.

        A row has one byte for each key to which the query rows ``part`` (first, count) attend. The
        size of a row is rounded up to the scratchpad's alignment. The row stride of scores is twice
        as large.
        """
        return aligned(self.layout.spans[part].columns, self.config)

    def steps(self, heads: Sequence[int]) -> tuple[Steps, Steps]:
        """Return two lists of functions that yield the instructions of the heads ``heads``.

        The query rows of the heads are divided into groups, with one softmax for each group.
        Function i of the first list yields scores and probabilities of group i. Function i of the
        second list yields the products of these probabilities and values.
        """
        m, size = self.layout.m, self.layout.together
        units = [(head, *part) for head in heads for part in self.layout.spans]
        units.sort(key=lambda unit: unit[1] // m)
        steps = [
            [
                Rows(*unit, place=begin // size % 2, at=index * unit[2])
                for index, unit in enumerate(units[begin : begin + size])
            ]
            for begin in range(0, len(units), size)
        ]
        ahead: Steps = [
            partial(self.probabilities, with_one_softmax(step), after, begins=step is steps[0])
            for step, after in zip(steps, [*steps[1:], ()], strict=True)
        ]
        return ahead, [partial(self.contexts, step) for step in steps]

    def probabilities(
        self, step: Step, following: Sequence[Rows] = (), *, begins: bool = True
    ) -> Iterator[Draft]:
        """Yield instructions that compute scores and probabilities of a group of query rows.

        - ``step``: the group, with the order of its products and softmaxes.
        - ``following``: the next group, whose keys are copied ahead (:meth:`gathered`).
        - ``begins``: true for an attention's first group, whose keys are not copied yet.
        """
        cols, first = self.config.array.cols, next(r for r in step.order if isinstance(r, Rows))
        (pieces,) = groups(self.layout.spans[first.part].columns, (), self.layout.tiles, cols)
        drains = self.config.fused is not None and len(pieces) == 1
        stride = step.total | (drains and self.layout.odd)
        if begins:
            yield from self.gathered(self.layout.keys, first)
        for columns in pieces:
            name, tiles = f"{self.layout.sums}{first.place}", -(-columns[1] // cols)
            sums = View(self.rules.acc(name, stride * tiles), stride)
            for each in step.order:
                match each:
                    case Rows():
                        yield from self.scores(each, sums.behind(each.at), columns)
                    case Softmax():
                        own = sums.behind(each.rows[0].at)
                        if not drains:
                            yield self.requantized(each.rows, own, columns)
                        if columns is not pieces[-1]:
                            continue
                        yield from self.gathered(self.layout.values, first)
                        # So the array can begin the next products during the softmax.
                        for rows in following[:1]:
                            yield from self.gathered(self.layout.keys, rows)
                        yield self.softmax(each.rows, own if drains else None, *each.flags)
                    case _:
                        each()

    def scores(self, rows: Rows, sums: View, columns: Part) -> Iterator[Draft]:
        """Yield the instructions that multiply queries by keys.

        ``rows`` are the query rows. ``columns`` (first, count) are the scores' columns, one for
        each key. ``sums`` is the view (address and stride) of the scores in the accumulators.
        """
        layout, op, m = self.layout, self.op, self._m([rows])
        first, width = layout.queries[rows.head]
        query = layout.query.view(layout.row + rows.first, first)
        if rows.heads > 1:
            distance = layout.queries[rows.head + 1][0] - first
            query = replace(query, stride=distance * op.query.element)
        wide = {"a_wide"} if op.query.wide else set[str]()
        # INT16 queries and keys need two products.
        halves = [{"b_high"}, {"b_low"}] if op.key.wide else [set[str]()]
        zeros = {"a_zero": op.query.zero, "b_zero": op.key.zero}
        for place, key, count in self._runs(rows, columns):
            keys, flags = self._operand(layout.keys, rows, key)
            target = sums.behind((place - columns[0]) // self.config.array.cols * sums.stride)
            flags |= wide | ({"b_transpose"} if isinstance(keys, View) else set())
            for half in halves:
                n = self._n(key, count)
                yield product(query, keys, target, m, width, n, *flags, *half, **zeros)

    def requantized(self, ranges: Sequence[Rows], sums: View, columns: Part) -> Draft:
        """Return a DRAIN that requantizes attention scores and writes them to the scratchpad.

        - ``ranges``: ranges of query rows of one or more heads (:class:`Rows`). The DRAIN writes
          the scores of all.
        - ``sums``: address and stride of the scores in the accumulators.
        - ``columns``: columns (first, count) of the scores, one for each key.
        """
        head = next(start for start, count in self.runs if ranges[0].head < start + count)
        work = self._work(
            "scores", ranges, sums, columns, self._word(f"{self.op.prefix}.scores", head)
        )
        return work.requantize(Opcode.DRAIN, "wide_out", "per_tensor")

    def softmax(self, ranges: Sequence[Rows], sums: View | None, *flags: str) -> Draft:
        """Return the SOFTMAX instruction that computes probabilities from rows of scores.

        - ``ranges``: ranges of query rows of one or more heads (:class:`Rows`). The SOFTMAX
          computes the rows of all.
        - ``sums``: address and stride of the scores in the accumulators; None if the scores are in
          the scratchpad.
        - ``flags``: names of further instruction flags.
        """
        op, first, diagonal = self.op, ranges[0], self.op.heads[ranges[0].head].diagonal
        span, word = self.layout.spans[first.part], self._word(f"{op.prefix}.scores", first.head)
        if sums is None:
            sums, word = self._view("scores", first), word + 1
        else:
            flags = ("drain", *flags)
        if op.deferred:
            word, flags = factored(word, self.layout.factor + first.head), ("factors", *flags)
        return self._work("probabilities", ranges, sums, (0, span.columns), word).softmax(
            *(() if diagonal is None else ("diagonal",)),
            *flags,
            limit=span.limit,
            limit_step=span.limit_step,
            start=(span.start, span.start_step),
            zero=op.probability_zero,
            diagonal=(0, 0) if diagonal is None else (first.first % self.layout.m, diagonal),
        )

    def contexts(self, ranges: Sequence[Rows]) -> Iterator[Draft]:
        """Yield instructions that multiply probabilities by values, and requantize the sums.

        ``ranges`` are ranges of query rows of one or more heads (:class:`Rows`). If the
        accumulators have room, the sums of several successive heads are computed together.
        """
        tiles, rest = divmod(self.op.head_dim, self.config.array.cols)
        marks = self.rules.blocks[self.op.target.buffer].column_marks
        while ranges:
            first = ranges[0]
            # Heads are computed together if their columns fill whole tile columns, their sums fit
            # half of the accumulators, and their results are in one block of columns.
            most = 1 if rest else max(1, self.rules.accumulators.tiles(first.count) // tiles)
            own = [rows for rows in ranges if rows.first == first.first][:most]
            begins = [rows.head * self.op.head_dim in marks for rows in own]
            own = own[: begins.index(True, 1) if any(begins[1:]) else None]
            for part in self.sums(own):
                yield from self.mixes(own, *part)
                yield from self.drains(own, *part)
            ranges = ranges[len(own) :]

    def sums(self, ranges: Sequence[Rows]) -> Iterator[tuple[int, Part]]:
        """Allocate accumulator rows for weighted sums of values, and yield (first row, columns).

        ``ranges`` are ranges of query rows of one or more heads (:class:`Rows`). ``columns`` is a
        range (first, count) of a head's columns. If there are too few accumulator rows for all
        columns of a head, the method yields several ranges in succession.
        """
        total, first, cols = sum(rows.total for rows in ranges), ranges[0], self.config.array.cols
        (pieces,) = groups(self.op.head_dim, (), self.layout.tiles, cols)
        for columns in pieces:
            rows = total * -(-columns[1] // cols)
            yield self.rules.acc(f"context{first.place}.{first.at}", rows), columns

    def mixes(self, ranges: Sequence[Rows], acc: int, columns: Part) -> Iterator[Draft]:
        """Yield the MATMUL instructions that multiply probabilities by values.

        - ``ranges``: ranges of query rows of one or more heads (:class:`Rows`).
        - ``acc``: the first accumulator row for the sums.
        - ``columns``: range (first, count) of a head's value columns.
        """
        total, tiles = sum(rows.total for rows in ranges), -(-columns[1] // self.config.array.cols)
        # Order of sums: head, tile column, query if beside; otherwise tile column, head, query.
        for rows in ranges:
            beside = View(acc + (rows.at - ranges[0].at) * tiles, rows.count)
            below = View(acc + rows.at - ranges[0].at, total)
            yield from self._mix(rows, beside if self.layout.beside else below, columns)

    def drains(self, ranges: Sequence[Rows], acc: int, columns: Part) -> Iterator[Draft]:
        """Yield the DRAIN instructions that requantize weighted sums of values.

        - ``ranges``: ranges of query rows of one or more heads (:class:`Rows`).
        - ``acc``: the first accumulator row of the sums.
        - ``columns``: range (first, count) of each head's columns.
        """
        total, first = sum(rows.total for rows in ranges), ranges[0]
        if self.layout.beside:
            heads = sum(rows.heads for rows in ranges)
            yield self._drain(replace(first, heads=1), View(acc, first.count), columns, heads=heads)
        elif self.layout.by_row:
            yield self._drain(replace(first, heads=total), View(acc, total), columns, "per_row")
        else:
            for row in range(total):
                rows = replace(first, head=first.head + row, heads=1)
                yield self._drain(rows, View(acc + row, total), columns)

    def _mix(self, rows: Rows, sums: View, columns: Part) -> Iterator[Draft]:
        """Yield the products of some rows' probabilities and values."""
        op, layout, cols, m = self.op, self.layout, self.config.array.cols, self._m([rows])
        marks = [mark - self._first_key(rows) for mark in layout.values.blocks.row_marks]
        zeros = {"a_zero": op.probability_zero, "b_zero": op.value.zero}
        seen, widest = layout.spans[rows.part].columns, cols if layout.values.slots else columns[1]
        for start, key, count in self._runs(rows, (0, seen), marks):
            source, k = self._view("probabilities", rows, start), self._n(key, count)
            for column, n in parts(columns[1], widest):
                values, flags = self._operand(layout.values, rows, key, columns[0] + column)
                target = sums.behind(column // cols * sums.stride)
                yield product(source, values, target, m, k, n, *flags, **zeros)

    def _drain(self, rows: Rows, sums: View, columns: Part, *flags: str, heads: int = 1) -> Draft:
        """Return the requantization of columns of a head's context, or of heads side by side."""
        op, first, m = self.op, rows.head * self.op.head_dim, self._m([rows])
        # Parameters of the next heads follow; each row, or tile column, uses those of its head.
        alike = not flags and columns_of(self.context, first, heads * op.head_dim).per_tensor
        count = rows.heads if flags else 0
        if heads > 1 and not alike:
            tiles = -(-op.head_dim // self.config.array.cols)
            count = heads * tiles * self.config.lane_groups
        word, flags = self._word(op.target.name, rows.head, count), flags or ("per_tensor",) * alike
        if op.deferred:
            word = factored(word, self.layout.factor + rows.head)
            flags += ("factors", *(("by_tile",) if heads > 1 else ()))
        lines = self.layout.row + rows.first, rows.count
        part = first + columns[0], columns[1] * heads
        view, anew = self.rules.blocks[op.target.buffer].view(lines[0], part[0]), not op.residual
        if rows.count == 1:
            view = replace(view, stride=op.head_dim * op.target.element)
        work = self.rules.vector_operands(
            sums, op.target, lines, part, m, word, place=view, anew=anew
        )
        return work.requantize(Opcode.DRAIN, *flags, tensor=op.target, residual=op.residual)

    def gathered(self, attended: Attended, rows: Rows) -> Iterator[Draft]:
        """Yield instructions that copy separate ranges of keys or values to adjacent rows.

        A product then reads the copies as one operand. Only in windowed attention, the query rows
        ``rows`` may attend to separate ranges: a window and global tokens. If they attend to one
        range, nothing is copied. ``attended`` has the location of the keys or values.
        """
        tensor, width, place = attended.tensor, attended.width, 0
        buffer, stride = f"{attended.name}_gathered.{rows.place}", width * tensor.element
        marks = [mark - self._first_key(rows) for mark in attended.blocks.row_marks]
        wide = ("wide_in", "wide_out") if tensor.wide else ()
        pieces = (run for run in self.layout.spans[rows.part].runs if run[1:])
        for first, count in (piece for run in pieces for piece in run):
            for inner, m in cut(count, {mark - first for mark in marks}):
                source, _ = self._operand(attended, rows, first + inner)
                assert isinstance(source, View), "no slots are gathered"
                target = View(Ref(buffer, place * stride), stride)
                written = Written(f"{self.op.prefix}.{attended.name}_gathered")
                defines = self._anew(target, place)
                work = Work(
                    source, target, m, width, self._word(f"{self.op.prefix}.copy"), written, defines
                )
                yield work.requantize(Opcode.MAP, "per_tensor", *wide)
                place += m
        if place:
            self.rules.memory.buffer(buffer, stride * place)

    def _runs(
        self, rows: Rows, columns: Part, marks: Iterable[int] = ()
    ) -> Iterator[tuple[int, int, int]]:
        """Yield (column, key, count) of runs inside columns (first, count), cut at rows ``marks``.

        The key is the first one's row, or ``~row`` of a gathered run.
        """
        begin, gathered, (column, end) = 0, 0, (columns[0], sum(columns))
        for run in self.layout.spans[rows.part].runs:
            first, total = run[0][0], sum(some for _, some in run)
            for key, k in cut(total, {mark - first for mark in marks} if not run[1:] else ()):
                low, high = max(begin + key, column), min(begin + key + k, end)
                if low < high:
                    inside = low - begin
                    yield low, ~(gathered + inside) if run[1:] else first + inside, high - low
            begin += total
            gathered += total if run[1:] else 0

    def _operand(
        self, attended: Attended, rows: Rows, key: int, column: int = 0
    ) -> tuple[View | int, frozenset[str]]:
        """Return a head's keys or values from a row on, or from row ``~key`` of gathered ones.

        They are a view of rows, or the first weight slot, with the flags that select the head.
        """
        head, element = rows.head // self.op.group, attended.tensor.element
        if attended.slots:
            return attended.slots[head][column // self.config.array.cols]
        if key < 0:
            stride = attended.width * element
            place = Ref(f"{attended.name}_gathered.{rows.place}", ~key * stride + column * element)
            return View(place, stride), frozenset()
        row = self._first_key(rows) + key
        return attended.blocks.view(row, head * attended.width + column), frozenset()

    def _first_key(self, rows: Rows) -> int:
        """Return the row of the first key of a sequence."""
        return rows.first // self.layout.m * self.layout.n

    def _view(self, name: str, rows: Rows, column: int = 0) -> View:
        """Return the place of scores or probabilities from a column on."""
        size = 2 if name == "scores" else 1
        place, stride = self.layout.places[name][rows.place], size * self.stride(rows.part)
        return View(place.behind(rows.at * stride + size * column), stride)

    def _work(
        self, name: str, ranges: Sequence[Rows], source: View, columns: Part, word: int
    ) -> Work:
        """Return the work that writes columns (first, count) of scores or probabilities."""
        target, span = self._view(name, ranges[0], columns[0]), self.layout.spans[ranges[0].part]
        pieces = span.pieces if len(span.pieces) > 1 else ()
        column, count = columns[0] + (0 if pieces else span.pieces[0][0]), columns[1]
        name = f"{self.op.prefix}.{name}"
        written, *rest = (
            Written(name, rows.first, rows.count, column, count, rows.head, pieces=pieces)
            for rows in ranges
        )
        written, defines = replace(written, next_ranges=tuple(rest)), self._anew(target, columns[0])
        return Work(source, target, self._m(ranges), self._n(*columns), word, written, defines)

    def _anew(self, target: View, offset: int) -> str:
        """Return the buffer that a write at its start writes anew."""
        assert isinstance(target.place, Ref)
        return "" if self.rules.lasting or offset else target.place.buffer

    def _word(self, name: str, head: int = 0, count: int = 0) -> int:
        """Return the first of ``count`` parameter words, or of all, from a head's on."""
        words = self.layout.words[f"{name}.{head}"]
        (word,) = self.rules.params((words, 0, count))
        return word

    def _m(self, ranges: Sequence[Rows]) -> Count:
        """Return the number of a step's rows in a run."""
        total, first = sum(rows.total for rows in ranges), ranges[0]
        if total > first.count:
            return total
        return self.rules.row_operand(first.first, total, self.op.query.rows)

    def _n(self, key: int, count: int) -> Count:
        """Return the number of some keys in a run."""
        if self.layout.seen is not None:
            return self.layout.seen
        return self.rules.row_operand(key, count, self.op.key.rows) if self.counted else count


def with_one_softmax(rows: Sequence[Rows]) -> Step:
    """Return an order of instructions with one softmax for all query rows in ``rows``.

    The result is a :class:`Step`. The products of these queries with the keys come first, in the
    order of ``rows``. The softmax of all their scores follows.
    """
    return Step([*rows, Softmax(rows)], sum(each.total for each in rows))
