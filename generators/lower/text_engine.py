"""Common parts of a decoder's programs: products, and the instructions that read their sums."""

from collections.abc import Sequence
from dataclasses import dataclass

from arch.isa import Opcode
from generators.fitting import FitError, doubled
from generators.graph import Norm
from generators.lower.lowering import Operands
from generators.lower.text_memory import Register, Words, given
from generators.lower.text_plan import Plan
from generators.lower.text_stage import WORDS
from generators.program.draft import Draft, Given, Ref, Written
from generators.program.image import Piece

EPS_LOW_WIDTH = 28
"""Bits of an added variance in the lower of its two operands."""

BANKS = 2
"""Banks of the accumulators, which their rows take in turn."""
ODD = frozenset({"query", "up"})
"""Projections whose sums are in the odd rows: others are drained while they are multiplied."""


@dataclass
class Instructions:
    """Makes the instructions of one program."""

    plan: Plan
    rows: int
    """Tokens that there is room for; 1 for a step."""

    def __post_init__(self) -> None:
        """Note what does not change."""
        self.config, self.decoder = self.plan.config, self.plan.decoder
        self.stage = self.plan.stage
        self.model = self.decoder.description
        self.memory, self.capacity = self.plan.memory, self.plan.cache.capacity
        self.m: int | Given = 1 if self.rows == 1 else given(Register.ROWS, self.rows)
        self.count = given(Register.COUNT, self.capacity)
        self._acc: dict[str, tuple[int, int]] = {}
        self._word = 0
        self._brought: tuple[tuple[tuple[Words, int, int], ...], list[int]] = (), []

    def stride(self, name: str) -> int:
        """Return the accumulator rows from one tile column of a projection to the next.

        Rows alternate between two banks. A projection of one token takes those of one bank, so that
        it can be drained while a product goes to the other bank; but what attention mixes is
        drained from both banks beside the product of its output, which takes both in turn.
        """
        if self.rows > 1:
            return self.rows
        return 1 if name.endswith(".output") else BANKS

    def sums(self, name: str) -> int:
        """Return the first accumulator row of a projection, in the bank that is its own."""
        kind = name.rpartition(".")[2]
        tiles = -(-self.plan.matrices[name].n // self.config.cols)
        return self.acc(kind, tiles * self.stride(name)) + (self.rows == 1 and kind in ODD)

    def acc(self, name: str, rows: int) -> int:
        """Return the first of so many accumulator rows, an even one, that only this name has."""
        if name not in self._acc:
            first = sum(count + count % BANKS for _, count in self._acc.values())
            if first + rows > self.config.acc_depth:
                raise FitError(
                    f"Model {self.model.name} needs {first + rows} accumulator rows or more, but "
                    f"acc_depth is {self.config.acc_depth}",
                    doubled(self.config, "acc_depth", first + rows),
                )
            self._acc[name] = first, rows
        return self._acc[name][0]

    def take(self) -> list[Draft]:
        """Return the instructions so far, behind which parameter words come to the same places."""
        self._word, self._brought = 0, ((), [])
        return self.stage.take()

    def params(self, *wanted: tuple[Words, int, int]) -> list[int]:
        """Return places of words: each of some kept words, so many from one on, or all for 0.

        Those that pass are brought, unless just these were brought last.
        """
        if wanted == self._brought[0]:
            return self._brought[1]
        found = []
        depth = self.config.param_depth
        ranges = [(one, first, count or one.count - first) for one, first, count in wanted]
        total = sum(count for _, _, count in ranges)
        if self.plan.passing and total > depth:
            raise FitError(
                f"Model {self.model.name} needs {total} parameter words at once, but param_depth "
                f"is {depth}",
                doubled(self.config, "param_depth", total),
            )
        if self._word + total > depth:
            self._word = 0
        for one, first, count in ranges:
            if not one.stride:
                found.append(one.first + first)
                continue
            piece = Piece(one.first + first * one.stride, count, one.stride)
            place = self.stage.piece(piece, WORDS, self.config.param_lines * self.config.line_bytes)
            operands: Operands = {"i_addr": place, "n": count, "params": self._word}
            self.vector(Opcode.PARAMS, "parameters", operands)
            found.append(self._word)
            self._word += count
        self._brought = wanted, found
        return found

    def vector(
        self, opcode: Opcode, name: str, operands: Operands, flags: Sequence[str] = ()
    ) -> None:
        """Add an instruction of the vector engine, which writes a tensor of some name."""
        draft = Draft(opcode, operands, frozenset(flags), written=Written(name))
        self.stage.add(draft)

    def product(
        self,
        name: str,
        source: str | Given | Ref,
        acc: int,
        *,
        tiles: tuple[int, int] | None = None,
        share: int | None = None,
    ) -> None:
        """Add the product of all rows of a buffer, or of one row at a place, and a matrix.

        With ``tiles`` (first, count) only of some tile columns, with ``share`` of one share.
        """
        matrix, cols = self.plan.matrices[name], self.config.cols
        one = not isinstance(source, str)
        place = Ref(source) if isinstance(source, str) else source
        total = -(-matrix.n // cols)
        first, count = tiles or (0, total)
        end = min(matrix.n, (first + count) * cols)
        stride = BANKS if one else self.stride(name)
        common: Operands = {
            "a_stride": matrix.k,
            "acc_stride": stride,
            "m": 1 if one else self.m,
        }
        for index, part in enumerate(matrix.shares):
            operands = common | {
                "a_addr": _behind(place, part.row),
                "acc_addr": acc,
                "k": part.k,
                "n": end - first * cols,
                "slot": part.slots.first + first * part.slots.k_tiles,
            }
            if share in (None, index):
                self.stage.add(Draft(Opcode.MATMUL, operands, matrix.flags | {"resident"}))
        for cut in matrix.cuts:
            if not first * cols <= cut.column < end:
                continue
            addr = _behind(place, cut.row)
            operands = common | {
                "a_addr": addr,
                "b_addr": self.stage.piece(cut.piece),
                "b_stride": cut.n,
                "acc_addr": acc + (cut.column // cols - first) * stride,
                "k": cut.k,
                "n": cut.n,
            }
            self.stage.add(Draft(Opcode.MATMUL, operands, matrix.flags))

    def drain(
        self,
        name: str,
        acc: int,
        target: Ref | Given,
        *flags: str,
        first: int = 0,
        count: int = 0,
        **more: int | Ref | Given,
    ) -> None:
        """Add the requantization of a projection's sums, or of some of its tile columns."""
        matrix, cols = self.plan.matrices[name], self.config.cols
        end = min(matrix.n, (first + (count or matrix.n)) * cols)
        groups = self.config.lane_groups
        behind = min(matrix.words.count, -(-end // cols) * groups)
        (words,) = self.params((matrix.words, first * groups, behind - first * groups))
        wide = 2 if "wide_out" in flags else 1
        operands: Operands = {
            "acc_addr": acc,
            "acc_stride": self.stride(name),
            "o_addr": target,
            "o_stride": wide * matrix.n,
            "m": self.m,
            "n": end - first * cols,
            "params": words,
            **more,
        }
        self.vector(Opcode.DRAIN, name, operands, flags)

    def norm(self, name: str, step: Norm) -> None:
        """Add the norm of all rows of the residual stream."""
        (words,) = self.params((self.plan.words[name], 0, 0))
        operands: Operands = {"i_addr": Ref("x"), "i_stride": 2 * self.model.dim, "params": words}
        self._norm(name, step, operands, self.m)

    def _norm(
        self,
        name: str,
        step: Norm,
        source: Operands,
        m: int | Given,
        flags: Sequence[str] = (),
    ) -> None:
        operands: Operands = source | {
            "o_addr": Ref("h"),
            "o_stride": self.model.dim,
            "m": m,
            "n": self.model.dim,
            "eps_low": _signed(step.eps),
            "eps_high": step.eps >> EPS_LOW_WIDTH,
        }
        kind = ["rms"] if self.model.norm == "rmsnorm" else []
        same = ["per_tensor"] if step.rescale.per_tensor else []
        self.vector(Opcode.NORM, name, operands, [*kind, *same, *flags])

    def shared(self, name: str, source: str, came: int, first: int = 0) -> int:
        """Add shares of a product, of which so many columns of the operand are there.

        Those before ``first`` have been added; returned is the first that has not. Without weights
        on the chip all of it is one share.
        """
        matrix = self.plan.matrices[name]
        acc = self.sums(name)
        ends = [share.row + share.k for share in matrix.shares] or [matrix.k]
        while first < len(ends) and ends[first] <= came:
            self.product(name, source, acc, share=first)
            first += 1
        return first

    def residual(self, name: str, after: str, step: Norm) -> None:
        """Add the shares' sum to the residual stream, and the norm behind it."""
        dim = self.model.dim
        matrix = self.plan.matrices[name]
        acc = self.sums(name)
        both = (matrix.words, 0, 0), (self.plan.words[after], 0, 0)
        fits = sum(one.count for one, _, _ in both) <= self.config.param_depth
        if self.config.fused and (fits or not self.plan.passing):
            pre, words = self.params(*both)
            operands: Operands = {
                "i_addr": acc,
                "i_stride": self.stride(name),
                "r_addr": Ref("x"),
                "r_stride": 2 * dim,
                "s_addr": Ref("x"),
                "s_stride": 2 * dim,
                "pre": pre,
                "params": words,
            }
            self._norm(after, step, operands, self.m, ("drain", "add", "write_sum"))
            return
        self.drain(name, acc, Ref("x"), "wide_out", "add", r_addr=Ref("x"), r_stride=2 * dim)
        self.norm(after, step)


def _behind(place: Ref | Given, offset: int) -> Ref | Given:
    """Return a place so many bytes behind another."""
    if isinstance(place, Ref):
        return Ref(place.buffer, place.offset + offset)
    assert isinstance(place.base, Ref)
    return Given(place.register, place.most, Ref(place.base.buffer, place.base.offset + offset))


def _signed(eps: int) -> int:
    """Return the low bits of an added variance as an operand holds them."""
    half = 1 << (EPS_LOW_WIDTH - 1)
    return (eps + half) % (1 << EPS_LOW_WIDTH) - half
