"""A compiled model's programs, and the data that a host needs to run them.

The programs start at the entry points that :mod:`celosia.generators.program.executable` describes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.graph.tensors import Tensor, quantize
from celosia.generators.lower.residence import Cache, Register, of_text
from celosia.generators.program.calls import Call, RunNumber, registers
from celosia.generators.program.executable import (
    AGAIN,
    CHUNK,
    ENCODE,
    SCORES,
    STEP,
    Executable,
    Fill,
    Run,
    entry_at,
)
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.reference.floats import unit_rows
from celosia.generators.runtime.interface import Written

Writes = tuple[tuple[int, bytes], ...]
"""Addresses in external memory, and the bytes to write there."""


@dataclass(frozen=True)
class Request:
    """Memory contents and register values that a host writes before an inference."""

    writes: Writes
    registers: dict[int, int]
    """Values of sequencer registers."""

    def give(self, machine: Written) -> None:
        """Write the request's memory contents and register values to a machine or a flash image."""
        for addr, data in self.writes:
            machine.write_memory(addr, data)
        for number, value in self.registers.items():
            machine.set_register(number, value)


@dataclass(frozen=True, kw_only=True)
class Host(Executable):
    """A compiled model's programs, and the data that a host needs to run them.

    A host first processes :attr:`setup`, then writes :attr:`words` to program memory. For each run,
    it writes the input or token numbers and the run's registers, and starts the run's entry point.
    """

    name: str
    """Name of the model."""
    setup: list[Fill]
    """Images that a host writes and setup programs that it runs, in order, before all others."""
    memory_bytes: int
    """External memory that the programs access, from address 0 (bytes)."""
    calls: Mapping[str, Call]
    """Registers that the host writes before each program starts, by program name without bits."""
    input: Tensor
    """The input of a run: the rows of all inputs of a batch, or token numbers."""
    input_piece: Piece
    """Rows of numbers in external memory."""
    output: Tensor
    """The output of a run: the rows of a batch, or a token's scores of all next tokens."""
    output_piece: Piece
    places: int
    """Most tokens of an input or of a text."""
    batch: int = 1
    """Inputs of one run, whose rows are concatenated, or texts; a step takes a token of each."""
    writes: Mapping[int, Writes] = field(default_factory=dict)
    """Memory to write besides an input, by the number of its rows; empty for token numbers."""
    unit: bool = False
    """The host scales each row of the output to length 1."""
    follows: bool = False
    """The output has one row less for each row that the input has less."""
    cache: Cache
    """Places of keys and values of a text; all of an input's for rows of numbers."""
    kv_bits: int = OPERAND_BITS
    """Width of the cached keys and values (bits)."""
    kv_block: int = 0
    """Columns of values that share an exponent; 0 if none do."""
    rows: int = 1
    """Most tokens of a chunk."""
    resident: bool = False
    """True if weights, keys and values stay on the chip."""
    slots: int = 0
    """Weight slots that are used by a model of texts."""
    scratchpad_bytes: int = 0
    """Scratchpad bytes that are used by a model of texts."""
    start: int = 0
    """The token that begins an answer to a source."""
    lookups: int = 0
    """Tokens of a source that one run of ``lookup`` takes; 0 without a source."""
    source_positions: int = 0
    """Most tokens of a source."""

    @property
    def reads_tokens(self) -> bool:
        """True if the input of a run is token numbers, false if it is rows of numbers."""
        return STEP in self.calls

    @property
    def vocabulary(self) -> int:
        """Number of columns of the output; for a language model, the size of its vocabulary."""
        return self.output.columns

    @property
    def image(self) -> Bytes:
        """Contents of external memory after setup: all bytes from address 0 on, as uint8."""
        return np.frombuffer(self.setup[-1].image, np.uint8)

    @property
    def keeps(self) -> bool:
        """True if the weights and parameters stay on the chip from run to run."""
        return AGAIN in self.entries

    def run(
        self,
        position: int = 0,
        tokens: Sequence[int] = (),
        *,
        rows: int = 0,
        source: int = 0,
        again: bool = False,
        bits: int = OPERAND_BITS,
    ) -> Run:
        """Return the run that processes ``rows`` successive tokens from ``position`` on.

        - ``rows`` 0: an encoder's longest input, or one token of a text.
        - ``source``: number of tokens of an encoder-decoder's source; 0 for the most.
        - ``again``: true for a run that uses the weights that the run before it left on the chip.
        - ``bits``: number of upper bits read of each weight (8, or 4 or 2 for weights in bit
          planes).

        Raises :class:`InputError` if a position is not below :attr:`places`.
        """
        if not self.reads_tokens:
            entry, rows = entry_at(ENCODE, bits), rows or self.places
            entry = AGAIN if again and self.keeps else entry
            return Run(entry, self._registers(ENCODE, position, rows, source, tokens))
        if self.batch > 1:
            return self.steps([position] * self.batch, tokens, bits=bits)[0]
        rows = rows or 1
        name = STEP if rows == 1 else CHUNK
        return Run(entry_at(name, bits), self._registers(name, position, rows, source, tokens))

    def steps(
        self, positions: Sequence[int], tokens: Sequence[int] = (), *, bits: int = OPERAND_BITS
    ) -> list[Run]:
        """Return the runs that process one token of each text of a batch.

        ``positions`` and ``tokens`` have an element for each text. With two texts, the second run
        computes the logits of the second text; the first run does everything else. ``bits`` is the
        number of upper bits read of each weight. Raises :class:`InputError` if a position is too
        large.
        """
        by_text = [[token] for token in tokens] or [[]] * len(positions)
        whole = {
            of_text(register, text): value
            for text, (position, token) in enumerate(zip(positions, by_text, strict=True))
            for register, value in self._registers(STEP, position, 1, 0, token).items()
        }
        step = Run(entry_at(STEP, bits), whole)
        return [step, Run(entry_at(SCORES, bits), {})] if self.batch > 1 else [step]

    def chunk_runs(
        self, position: int, tokens: Sequence[int], *, bits: int = OPERAND_BITS
    ) -> list[Run]:
        """Return two runs: one looks up the embeddings of ``tokens``, the other processes them.

        ``tokens`` are 2 to :attr:`rows` tokens of a text from ``position`` on. ``bits`` is the
        number of upper weight bits that the second run reads.
        """
        words = registers(self.calls["words"], {RunNumber.POSITION: position}, tokens)
        return [Run("words", words), self.run(position, rows=len(tokens), bits=bits)]

    def source_runs(self, tokens: Sequence[int]) -> list[Run]:
        """Return the runs that process a source, the encoder's input in an encoder-decoder.

        ``tokens`` are all tokens of the source. The first runs look up the embeddings of at most
        :attr:`lookups` tokens each. The last run computes the encoder.
        """
        call, step = self.calls["lookup"], self.lookups
        encode = registers(self.calls[ENCODE], {RunNumber.SOURCE: len(tokens)})
        return [
            *(
                Run(
                    "lookup",
                    registers(call, {RunNumber.FIRST: first}, tokens[first : first + step]),
                )
                for first in range(0, len(tokens), step)
            ),
            Run(ENCODE, encode),
        ]

    def _registers(
        self, name: str, position: int, rows: int, source: int, tokens: Sequence[int]
    ) -> dict[int, int]:
        """Return the registers of a run of ``rows`` tokens, by number."""
        if position + rows > self.places:
            raise InputError(
                f"Model {self.name} takes at most {self.places} tokens, not {position + rows}"
            )
        numbers = {
            RunNumber.POSITION: position,
            RunNumber.PLACE: self.cache.place(position),
            RunNumber.COUNT: self.cache.count(position + rows - 1),
            RunNumber.LIMIT: self.cache.count(position),
            RunNumber.ROWS: rows,
            RunNumber.LAST: rows - 1,
            RunNumber.SOURCE: source or self.source_positions,
        }
        return registers(self.calls[name], numbers, tokens)

    def embedding_offset(self, token: int) -> int:
        """Return the value of the register WORD for a token.

        The value is the byte offset of the token's row in the embedding table.
        """
        return self.calls[STEP][Register.WORD].at({}, [token])

    @property
    def last_position(self) -> int:
        """Position of the last token for which the cache has room."""
        return min(self.cache.capacity, self.places) - 1

    def longest(self, bits: int) -> list[Run]:
        """Return the runs of the slowest inference or, for a language model, of the slowest token.

        The slowest inference has the longest input, and loads all weights. The slowest token is at
        :attr:`last_position`. ``bits`` is the number of upper weight bits to read.
        """
        if self.reads_tokens:
            return self.steps([self.last_position] * self.batch, bits=bits)
        return [self.run(bits=bits)]

    def predict_longest(self, latency: int, interval: int = 1, *, bits: int = OPERAND_BITS) -> int:
        """Return the predicted cycles of the runs that :meth:`longest` returns.

        External memory returns the first word ``latency`` cycles after a request, then one every
        ``interval`` cycles. ``bits`` is the number of upper weight bits to read.
        """
        return self.cycles(self.longest(bits), latency, interval)

    def batches(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return a list of arrays; each has the rows of all inputs that one run processes.

        A run processes :attr:`batch` inputs, whose rows are concatenated. If too few inputs are
        left for the last run, the last input is repeated.
        """
        groups = (inputs[at : at + self.batch] for at in range(0, len(inputs), self.batch))
        return [np.concatenate([*one, *[one[-1]] * (self.batch - len(one))]) for one in groups]

    @property
    def input_addr(self) -> int:
        """External byte address of the input."""
        return self.input_piece.addr

    @property
    def output_addr(self) -> int:
        """External byte address of the output."""
        return self.output_piece.addr

    @property
    def output_count(self) -> int:
        """Number of bytes of the output."""
        return self.output.bytes

    def length(self, rows: int | None = None) -> int:
        """Return the number of tokens of an input that has ``rows`` rows.

        A class token, which the model adds, counts as a token. If ``rows`` is None, the input has
        the largest number of rows.
        """
        return self.places - (0 if rows is None else self.input.rows - rows)

    def output_rows(self, rows: int) -> int:
        """Return the number of output rows for one input of ``rows`` rows."""
        missing = self.input.rows // self.batch - rows if self.follows else 0
        return self.output.rows // self.batch - missing

    def request(self, values: NDArray[np.floating]) -> Request:
        """Return the memory contents and register values that a host writes before an inference.

        ``values`` [rows, features] is the input; for a batch, the rows of all inputs. If the model
        does not begin with a linear embedding, rows are embedded tokens. Raises :class:`InputError`
        if the shape is wrong or a number is not finite.
        """
        rows, shape, source = len(values), np.shape(values), self.input
        least, longest = min(self.writes), source.rows
        if shape[1:] != (source.columns,) or not least <= rows <= longest:
            most = "at most " if least < longest else ""
            raise InputError(
                f"An input of model {self.name} must have the shape "
                f"[{most}{longest}, {source.columns}], not {list(shape)}"
            )
        if not np.isfinite(values).all():
            raise InputError(f"An input of model {self.name} must hold finite numbers")
        data = np.zeros((longest, source.columns))
        data[:rows] = values
        integers = quantize(data, source).astype("<i2" if source.wide else np.int8)
        other = self.request_at(rows)
        return Request(((self.input_addr, integers.tobytes()), *other.writes), other.registers)

    def request_at(self, rows: int) -> Request:
        """Return the result of :meth:`request` for ``rows`` rows, but without the input itself.

        The result has the register values, and the memory contents that depend on the number of
        rows, such as constants of an average over all rows.
        """
        run = self.run(rows=self.length(rows))
        return Request(self.writes[rows], dict(run.registers))

    def output_integers(self, data: bytes) -> NDArray[np.int64]:
        """Return the output of a run [rows, columns] as integers, from its bytes in memory.

        Elements are INT16, little-endian, if ``output.wide`` is true, otherwise INT8. For a batch,
        the rows are those of all inputs.
        """
        values = np.frombuffer(data, "<i2" if self.output.wide else np.int8)
        return values.reshape(self.output.rows, self.output.columns).astype(np.int64)

    def read_output(self, data: bytes) -> NDArray[np.float64]:
        """Return a run's output bytes as real numbers, [rows, columns].

        If :attr:`unit` is true, each row is scaled to Euclidean length 1.
        """
        real: NDArray[np.float64] = self.output.scale * self.output_integers(data).astype(float)
        return unit_rows(real) if self.unit else real
