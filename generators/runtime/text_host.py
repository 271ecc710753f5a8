"""A decoder's programs as a host runs them, with or without the model that they were made of.

``step`` takes one token; ``words`` and then ``chunk`` take several at matrix rate; ``logits``
stores the scores behind the last token, for a host that samples. Of an encoder-decoder ``lookup``
takes some tokens of a source and ``encode`` all that are looked up, for the keys and values that
each ``step`` attends to. Of nested weights ``step.4`` and ``step.2``, and so for chunks, read the
upper bits alone: the word at which the host starts is the choice of the precision. Of two texts
``step`` takes a token each and makes the scores of the first, ``scores`` those of the other.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.lower.fill import Fill
from celosia.generators.lower.residence import Cache, Register, of_text
from celosia.generators.program.executable import Executable, entry_at
from celosia.generators.program.image import Piece
from celosia.generators.program.predict import Prediction

SCORES = "scores"
"""Name of the program that makes the scores of the second of two texts."""


class Index(enum.StrEnum):
    """Number from which the host makes the value of a register."""

    TOKEN = "token"
    """The number of the run's token of some row, 0 where the run has fewer."""
    POSITION = "position"
    """Position of the run's first token."""
    PLACE = "place"
    """Its place in the cache."""
    COUNT = "count"
    """Places of the cache that the run's last token attends to."""
    LIMIT = "limit"
    """Places of the cache that its first token attends to."""
    ROWS = "rows"
    """Tokens of the run."""
    LAST = "last"
    """One less."""
    SOURCE = "source"
    """Tokens of the source."""
    FIRST = "first"
    """The place in its source of the first token of a lookup."""


@dataclass(frozen=True)
class Value:
    """Value of a register: ``index``, modulo and divided by what is not 0, times a factor."""

    index: Index
    times: int = 1
    divide: int = 1
    modulo: int = 0
    row: int = 0
    """The row whose token counts."""

    def at(self, numbers: Mapping[Index, int], tokens: Sequence[int] = ()) -> int:
        """Return the value for a run's numbers and tokens."""
        if self.index == Index.TOKEN:
            number = tokens[self.row] if self.row < len(tokens) else 0
        else:
            number = numbers[self.index]
        return (number % self.modulo if self.modulo else number) // self.divide * self.times


Call = Mapping[int, Value]
"""Values of the registers that the host writes before a program starts, by their numbers."""


@dataclass(frozen=True, kw_only=True)
class TextHost(Executable):
    """A decoder's programs for a configuration, and all that a host must know to run them."""

    name: str
    """The model's."""
    vocabulary: int
    cache: Cache
    kv_bits: int
    """Width of the keys and values that are kept (bits)."""
    kv_block: int
    """Columns of values that share an exponent; 0: none do."""
    places: int
    """Tokens that a text may have."""
    rows: int
    """Tokens that a chunk may have."""
    setup: list[Fill]
    """Programs that run once, one after the other, before everything else."""
    memory_bytes: int
    """External memory that programs touch, from address 0."""
    logits: Piece
    """External address of the INT16 [vocabulary] of ``logits``."""
    logits_step: float
    """Step of the scores."""
    calls: Mapping[str, Call]
    """Registers that the host writes before each program starts, by its name without bits."""
    resident: bool
    """Weights, keys and values stay on the chip."""
    slots: int
    """Weight slots that are taken."""
    scratchpad_bytes: int
    """Scratchpad bytes that are taken."""
    start: int
    """The token that begins an answer to a source."""
    lookups: int
    """Tokens of a source that one run of ``lookup`` takes; 0 without a source."""
    source_positions: int
    """Tokens that a source may have."""
    texts: int = 1
    """Texts of which a step takes a token each."""

    def step_registers(
        self, positions: Sequence[int], tokens: Sequence[int] = ()
    ) -> dict[int, int]:
        """Return the registers of a step of several texts, of each a position and its token.

        Without ``tokens`` the registers of these are left out. Raises :class:`InputError` where a
        text has fewer places.
        """
        by_text = [[token] for token in tokens] or [[]] * len(positions)
        return {
            of_text(register, text): value
            for text, (position, token) in enumerate(zip(positions, by_text, strict=True))
            for register, value in self.registers(position, 1, tokens=token).items()
        }

    def predict_texts(
        self,
        positions: Sequence[int],
        latency: int,
        interval: int = 1,
        *,
        bits: int = OPERAND_BITS,
    ) -> int:
        """Return the cycles that are expected of a step of several texts, with all scores.

        Arguments are those of :meth:`predict`.
        """
        registers = self.step_registers(positions)
        step = self.expect(entry_at("step", bits), registers, latency, interval)
        return step.cycles + self.expect(entry_at(SCORES, bits), {}, latency, interval).cycles

    def registers(
        self, position: int, rows: int, source: int = 0, tokens: Sequence[int] = ()
    ) -> dict[int, int]:
        """Return the registers of ``rows`` tokens of which the first has a position.

        They attend to ``source`` tokens of a source, or to as many as one may have where it is 0.
        Without ``tokens`` the register of a step's token is left out.

        Raises :class:`InputError` where a text has fewer places.
        """
        if position + rows > self.places:
            raise InputError(
                f"Model {self.name} takes at most {self.places} tokens, not {position + rows}"
            )
        numbers = {
            Index.POSITION: position,
            Index.PLACE: self.cache.place(position),
            Index.COUNT: self.cache.count(position + rows - 1),
            Index.LIMIT: self.cache.count(position),
            Index.ROWS: rows,
            Index.LAST: rows - 1,
            Index.SOURCE: source or self.source_positions,
        }
        return self._given("step" if rows == 1 else "chunk", numbers, tokens)

    def words_registers(self, tokens: Sequence[int], position: int) -> dict[int, int]:
        """Return the registers with which ``words`` looks the tokens of a chunk up."""
        return self._given("words", {Index.POSITION: position}, tokens)

    def lookup_registers(self, tokens: Sequence[int], first: int) -> dict[int, int]:
        """Return the registers of the lookup of a source's tokens, of which one is the first."""
        return self._given("lookup", {Index.FIRST: first}, tokens[first : first + self.lookups])

    def encode_registers(self, source: int) -> dict[int, int]:
        """Return the registers with which ``encode`` takes so many tokens of a source."""
        return self._given("encode", {Index.SOURCE: source}, ())

    def _given(
        self, name: str, numbers: Mapping[Index, int], tokens: Sequence[int]
    ) -> dict[int, int]:
        return {
            int(register): value.at(numbers, tokens)
            for register, value in self.calls[name].items()
            if tokens or value.index != Index.TOKEN
        }

    def word(self, token: int) -> int:
        """Return what the register of a token's number holds."""
        return self.calls["step"][Register.WORD].at({}, [token])

    @property
    def last_position(self) -> int:
        """Position of the last token that the cache has room for."""
        return min(self.cache.capacity, self.places) - 1

    def predict_whole(self, latency: int, interval: int = 1, *, bits: int = OPERAND_BITS) -> int:
        """Return the cycles that are expected of a token at :attr:`last_position`.

        Of several texts they are those of a token of each. Arguments are those of :meth:`predict`.
        """
        position = self.last_position
        if self.texts > 1:
            return self.predict_texts([position] * self.texts, latency, interval, bits=bits)
        return self.predict(position, latency, interval, bits=bits).cycles

    def predict_source(self, source: int, latency: int, interval: int = 1) -> int:
        """Return the cycles that are expected of all programs for so many tokens of a source."""
        runs = [
            ("lookup", self.lookup_registers([0] * source, first))
            for first in range(0, source, self.lookups)
        ]
        runs.append(("encode", self.encode_registers(source)))
        return sum(self.expect(*run, latency, interval).cycles for run in runs)

    def predict(
        self,
        position: int,
        latency: int,
        interval: int = 1,
        *,
        rows: int = 1,
        source: int = 0,
        bits: int = OPERAND_BITS,
    ) -> Prediction:
        """Return what is to be expected of the step of the token at a position.

        Several texts all have one there, and the scores of the second are left out. Of several
        ``rows`` it is the chunk whose first token is there. External memory has some latency and
        cycles for each word. Nested weights are read at so many ``bits``.
        """
        registers = self.registers(position, rows, source)
        if self.texts > 1:
            registers = self.step_registers([position] * self.texts)
        name = entry_at("step" if rows == 1 else "chunk", bits)
        return self.expect(name, registers, latency, interval)
