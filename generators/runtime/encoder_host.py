"""An encoder's compiled programs, and the data that a host needs to run them.

The programs start at the entry points that :mod:`celosia.generators.program.executable` describes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.graph.tensors import Tensor, quantize
from celosia.generators.program.executable import AGAIN, ENCODE, Compiled, Run, entry_at
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.reference.floats import unit_rows
from celosia.generators.runtime.interface import Written


@dataclass(frozen=True)
class Request:
    """Memory contents and register values that a host writes before an inference."""

    writes: tuple[tuple[int, bytes], ...]
    """Addresses in external memory, and the bytes to write there."""
    registers: dict[int, int]
    """Values of sequencer registers."""

    def give(self, machine: Written) -> None:
        """Write the request's memory contents and register values to a machine or a flash image."""
        for addr, data in self.writes:
            machine.write_memory(addr, data)
        for number, value in self.registers.items():
            machine.set_register(number, value)


@dataclass(frozen=True, kw_only=True)
class EncoderHost(Compiled):
    """An encoder's compiled programs, and the data that a host needs to run them.

    A host writes ``image`` to external memory from address 0, and ``words`` to program memory. For
    each inference, the host writes the result of ``request``, and starts the program at an entry
    point. It then passes the ``output_count`` bytes at ``output_addr`` to ``read_output``.
    """

    input: Tensor
    """The input of a run; for a batch the rows of all inputs."""
    output: Tensor
    """The output of a run; for a batch the rows of all outputs."""
    input_piece: Piece
    output_piece: Piece
    unit: bool
    """The host scales each row of the output to length 1."""
    follows: bool
    """The output has one row less for each row that the input has less."""
    batch: int = 1
    """Inputs of one run, whose rows are concatenated."""
    requests: Mapping[int, Request]
    """Registers and memory besides the input, by the number of rows of an input."""

    @property
    def image(self) -> Bytes:
        """Contents of external memory from address 0 on, [bytes] of uint8."""
        (only,) = self.setup
        return np.frombuffer(only.image, np.uint8)

    @property
    def keeps(self) -> bool:
        """True if the weights and parameters stay on the chip from run to run."""
        return AGAIN in self.entries

    def run(self, rows: int | None = None, *, again: bool = False, bits: int = OPERAND_BITS) -> Run:
        """Return the run (entry point and register values) of an input of ``rows`` rows.

        By default, ``rows`` is the largest number that the program accepts. If ``again`` is true
        and weights stay on the chip, the run uses the weights that an earlier run loaded. In all
        other cases, the run loads all weights. ``bits`` (8, 4 or 2) is the number of upper bits
        that the run reads of nested weights (stored in separate bit planes). For other weights,
        ``bits`` must be 8.
        """
        entry = AGAIN if again and self.keeps else entry_at(ENCODE, bits)
        return Run(entry, self.requests[rows or self.input.rows].registers)

    def longest(self, bits: int) -> list[Run]:
        """Return a list with the run of the longest input; the run loads all weights."""
        return [self.run(bits=bits)]

    def runs(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return a list of arrays; each has the rows of all inputs that one run processes.

        A run processes a batch of ``batch`` inputs, whose rows are concatenated. If too few inputs
        are left for the last batch, its last input is repeated until the batch is full.
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

    def output_rows(self, rows: int) -> int:
        """Return the number of output rows for one input of ``rows`` rows."""
        missing = self.input.rows // self.batch - rows if self.follows else 0
        return self.output.rows // self.batch - missing

    def request(self, values: NDArray[np.floating]) -> Request:
        """Return the memory contents and register values that a host writes before an inference.

        ``values`` is the input, [rows, features]; for a batch, the rows of all inputs. If the model
        allows variable lengths, ``values`` may have fewer rows than the longest input. If the model
        has no linear embedding, the rows are embedded tokens
        (:func:`celosia.generators.frontend.embedding.lookup`). Raises :class:`InputError` if the
        shape of ``values`` is wrong, or a number is not finite.
        """
        rows, shape, source = len(values), np.shape(values), self.input
        least, longest = min(self.requests), source.rows
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
        other = self.requests[rows]
        return Request(((self.input_addr, integers.tobytes()), *other.writes), other.registers)

    def output_integers(self, data: bytes) -> NDArray[np.int64]:
        """Return the bytes of a run's output as integers, [rows, columns].

        For a batch, these are the rows of all its outputs.
        """
        values = np.frombuffer(data, "<i2" if self.output.wide else np.int8)
        return values.reshape(self.output.rows, self.output.columns).astype(np.int64)

    def read_output(self, data: bytes) -> NDArray[np.float64]:
        """Return a run's output bytes as real numbers, [rows, columns].

        If ``unit`` is true, each row is scaled to length 1.
        """
        real: NDArray[np.float64] = self.output.scale * self.output_integers(data).astype(float)
        return unit_rows(real) if self.unit else real
