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
from celosia.generators.program.predict import Prediction

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

    def step_registers(
        self, positions: Sequence[int], tokens: Sequence[int] = ()
    ) -> dict[int, int]:
        """Return a dictionary from register numbers to values, for a run of one token per text.

        For text i, ``positions[i]`` is the token's position and ``tokens[i]`` the token number. If
        ``tokens`` is empty, registers that depend on token numbers are omitted. Raises
        :class:`InputError` if a position is beyond the longest text.
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
        """Return the predicted cycles of a step that processes one token of each text.

        If a run has two texts, a separate program computes the logits of the second. The cycles of
        this program are included. ``positions`` has the position of each text's token. The other
        arguments are those of :meth:`predict`.
        """
        return self.cycles(self._texts_runs(positions, bits), latency, interval)

    def _texts_runs(self, positions: Sequence[int], bits: int) -> list[Run]:
        step = Run(entry_at("step", bits), self.step_registers(positions))
        return [step, Run(entry_at(SCORES, bits), {})] if self.texts > 1 else [step]

    def registers(
        self, position: int, rows: int, source: int = 0, tokens: Sequence[int] = ()
    ) -> dict[int, int]:
        """Return a dictionary from register numbers to values, for a run of ``rows`` tokens.

        The tokens are successive tokens of a text, the first at ``position``. In an
        encoder-decoder, these tokens attend to ``source`` encoder tokens; 0 stands for the longest
        source. If ``tokens`` (the token numbers) is empty, registers that depend on token numbers
        are omitted. Raises :class:`InputError` if a position is beyond the longest text.
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
        return registers(self.calls["step" if rows == 1 else "chunk"], numbers, tokens)

    def words_registers(self, tokens: Sequence[int], position: int) -> dict[int, int]:
        """Return a dictionary from register numbers to values, for a run of the program ``words``.

        The program looks up the embeddings of ``tokens``, successive tokens of a text. The first
        token is at ``position``.
        """
        return registers(self.calls["words"], {Index.POSITION: position}, tokens)

    def lookup_registers(self, tokens: Sequence[int], first: int) -> dict[int, int]:
        """Return a dictionary from register numbers to values, for a run of the program ``lookup``.

        ``tokens`` are all tokens of a source (an encoder's input). The program looks up the
        embeddings of ``tokens[first]`` and the following tokens, at most ``lookups`` in all.
        """
        return registers(
            self.calls["lookup"], {Index.FIRST: first}, tokens[first : first + self.lookups]
        )

    def encode_registers(self, source: int) -> dict[int, int]:
        """Return a dictionary from register numbers to values, for a run of the encoder.

        ``source`` is the number of tokens of the encoder's input.
        """
        return registers(self.calls["encode"], {Index.SOURCE: source})

    def word(self, token: int) -> int:
        """Return the value of register WORD, which selects a token's row of the embedding table."""
        return self.calls["step"][Register.WORD].at({}, [token])

    @property
    def last_position(self) -> int:
        """Position of the last token for which the cache has room."""
        return min(self.cache.capacity, self.places) - 1

    def longest(self, bits: int) -> list[Run]:
        """Return a list of the runs that process a token of each text at :attr:`last_position`.

        The first run processes the tokens of all texts. If there are two texts, a second run
        computes the logits of the second text.
        """
        return self._texts_runs([self.last_position] * self.texts, bits)

    def predict_source(self, source: int, latency: int, interval: int = 1) -> int:
        """Return the predicted cycles of processing a source of ``source`` tokens.

        These are the cycles of all runs that look up embeddings, and of the encoder's run.
        ``latency`` and ``interval`` are those of :meth:`predict`.
        """
        runs = [
            Run("lookup", self.lookup_registers([0] * source, first))
            for first in range(0, source, self.lookups)
        ]
        return self.cycles([*runs, Run("encode", self.encode_registers(source))], latency, interval)

    def run(
        self, position: int, *, rows: int = 1, source: int = 0, bits: int = OPERAND_BITS
    ) -> Run:
        """Return the :class:`Run` (entry point and register values) of the token at ``position``.

        The result serves to predict cycles, so registers that depend on token numbers (vocabulary
        indices) are omitted. If a run has several texts, each text has a token at ``position``. The
        arguments are those of :meth:`predict`.
        """
        registers = self.registers(position, rows, source)
        if self.texts > 1:
            registers = self.step_registers([position] * self.texts)
        return Run(entry_at("step" if rows == 1 else "chunk", bits), registers)

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
        """Return the predicted cycles of processing the token at ``position``.

        The result has the cycles of the whole run, and the busy cycles of each engine. If ``rows``
        is above 1, the run processes ``rows`` successive tokens, beginning with this token. If a
        run has two texts, each text has a token at this position. A separate program computes the
        logits of the second text; the cycles of this program are not included.

        In an encoder-decoder, tokens attend to ``source`` encoder tokens; 0 stands for the longest
        source. External memory returns the first word ``latency`` cycles after a request, then one
        every ``interval`` cycles. Of nested weights (stored in separate bit planes), the run reads
        only the upper ``bits`` bits (8, 4 or 2). For other weights ``bits`` must be 8.
        """
        run = self.run(position, rows=rows, source=source, bits=bits)
        return self.expect(run, latency, interval)
