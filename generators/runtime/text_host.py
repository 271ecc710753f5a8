"""A decoder's compiled programs, and the data that a host needs to run them.

The programs start at the entry points that :mod:`celosia.generators.program.executable` describes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.lower.residence import Cache, Register, of_text
from celosia.generators.program.calls import Call, Index, registers
from celosia.generators.program.executable import Compiled, Run, entry_at
from celosia.generators.program.image import Piece

SCORES = "scores"
"""Name of the program that computes the scores of the second of two texts."""


@dataclass(frozen=True, kw_only=True)
class TextHost(Compiled):
    """A decoder's compiled programs, and the data that a host needs to run them."""

    vocabulary: int
    cache: Cache
    kv_bits: int
    """Width of the cached keys and values (bits)."""
    kv_block: int
    """Columns of values that share an exponent; 0 if none do."""
    places: int
    """Most tokens of a text."""
    rows: int
    """Most tokens of a chunk."""
    logits: Piece
    """External address of the INT16 [vocabulary] stored by ``logits``."""
    logits_step: float
    """Step of the scores."""
    calls: Mapping[str, Call]
    """Registers that the host writes before each program starts, by program name without bits."""
    resident: bool
    """True if weights, keys and values stay on the chip."""
    slots: int
    """Weight slots that are used."""
    scratchpad_bytes: int
    """Scratchpad bytes that are used."""
    start: int
    """The token that begins an answer to a source."""
    lookups: int
    """Tokens of a source that one run of ``lookup`` takes; 0 without a source."""
    source_positions: int
    """Most tokens of a source."""
    texts: int = 1
    """Number of texts; a step takes one token of each."""

    def run(
        self,
        position: int,
        tokens: Sequence[int] = (),
        *,
        rows: int = 1,
        source: int = 0,
        bits: int = OPERAND_BITS,
    ) -> Run:
        """Return the run of ``rows`` successive tokens of a text, the first at ``position``.

        In an encoder-decoder, these tokens attend to ``source`` encoder tokens; 0 stands for the
        longest source. ``tokens`` has the token numbers (vocabulary indices). If it is empty, as
        for predictions, registers that depend on token numbers are omitted. Of nested weights
        (stored in separate bit planes), the run reads only the upper ``bits`` bits (8, 4 or 2). For
        other weights ``bits`` must be 8.

        If a run has several texts, each has one of ``tokens``, at ``position``. A separate program
        computes the logits of the second text; it is not a part of this run.

        Raises :class:`InputError` if a position is beyond the longest text.
        """
        if self.texts > 1:
            return self.runs([position] * self.texts, tokens, bits=bits)[0]
        registers = self._registers(position, rows, source, tokens)
        return Run(entry_at("step" if rows == 1 else "chunk", bits), registers)

    def runs(
        self, positions: Sequence[int], tokens: Sequence[int] = (), *, bits: int = OPERAND_BITS
    ) -> list[Run]:
        """Return the runs that process one token of each text.

        For text i, ``positions[i]`` is the token's position and ``tokens[i]`` the token number. The
        first run processes the tokens of all texts. If there are two texts, a second run computes
        the logits of the second text. The other arguments and errors are those of :meth:`run`.
        """
        by_text = [[token] for token in tokens] or [[]] * len(positions)
        whole = {
            of_text(register, text): value
            for text, (position, token) in enumerate(zip(positions, by_text, strict=True))
            for register, value in self._registers(position, 1, 0, token).items()
        }
        step = Run(entry_at("step", bits), whole)
        return [step, Run(entry_at(SCORES, bits), {})] if self.texts > 1 else [step]

    def chunk_runs(
        self, position: int, tokens: Sequence[int], *, bits: int = OPERAND_BITS
    ) -> list[Run]:
        """Return the runs that look up and process successive ``tokens`` from ``position`` on.

        Their number is from 2 to :attr:`rows`; ``bits`` is that of :meth:`run`.
        """
        words = registers(self.calls["words"], {Index.POSITION: position}, tokens)
        return [Run("words", words), self.run(position, rows=len(tokens), bits=bits)]

    def source_runs(self, tokens: Sequence[int]) -> list[Run]:
        """Return the runs that process a source: lookups of the embeddings, and the encoder's run.

        ``tokens`` are all tokens of the source. Each lookup takes at most :attr:`lookups` of them.
        """
        call, step = self.calls["lookup"], self.lookups
        encode = registers(self.calls["encode"], {Index.SOURCE: len(tokens)})
        return [
            *(
                Run("lookup", registers(call, {Index.FIRST: first}, tokens[first : first + step]))
                for first in range(0, len(tokens), step)
            ),
            Run("encode", encode),
        ]

    def _registers(
        self, position: int, rows: int, source: int, tokens: Sequence[int]
    ) -> dict[int, int]:
        """Return the registers of a run of ``rows`` tokens, by number."""
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
        return registers(self.calls["step" if rows == 1 else "chunk"], numbers, tokens)

    def word(self, token: int) -> int:
        """Return the value of register WORD, which selects a token's row of the embedding table."""
        return self.calls["step"][Register.WORD].at({}, [token])

    @property
    def last_position(self) -> int:
        """Position of the last token for which the cache has room."""
        return min(self.cache.capacity, self.places) - 1

    def longest(self, bits: int) -> list[Run]:
        """Return the :meth:`runs` of a token of each text at :attr:`last_position`."""
        return self.runs([self.last_position] * self.texts, bits=bits)
