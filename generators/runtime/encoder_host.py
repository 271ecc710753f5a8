"""An encoder's programs as a host runs them, with or without the model that they were made of.

``encode`` runs an inference, ``again`` one that finds weights and parameters where the one before
left them, and ``encode.4`` and ``encode.2`` read the upper bits of nested weights alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.graph.tensors import Tensor, quantize
from celosia.generators.program.executable import AGAIN, ENCODE, Executable, entry_at
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.reference.floats import unit_rows
from celosia.generators.runtime.interface import Machine


@dataclass(frozen=True)
class Request:
    """Memory contents and registers that one inference needs before its start."""

    writes: tuple[tuple[int, bytes], ...]
    """Bytes for external memory, each at an address."""
    registers: dict[int, int]
    """Values of registers."""

    def give(self, machine: Machine) -> None:
        """Write it all to a machine."""
        for addr, data in self.writes:
            machine.write_memory(addr, data)
        for number, value in self.registers.items():
            machine.set_register(number, value)


@dataclass(frozen=True, kw_only=True)
class EncoderHost(Executable):
    """An encoder's programs for a configuration, and all that a host must know to run them.

    Write ``image`` to external memory from address 0 and load ``words``. Then, for each inference,
    give the machine its ``request``, start at word 0, and give the ``output_count`` bytes at
    ``output_addr`` to ``read_output``.
    """

    name: str
    """The model's."""
    image: Bytes
    input: Tensor
    """The input of a run, of a batch the rows of all inputs."""
    output: Tensor
    """The output of a run, of a batch the rows of all inputs."""
    input_piece: Piece
    output_piece: Piece
    memory_bytes: int
    """External memory that the model takes (bytes)."""
    unit: bool
    """Each row of the output is scaled to length 1 by the host."""
    follows: bool
    """The output has a row less for each row that the input has less."""
    batch: int = 1
    """Inputs of one run, the rows of all one below the other."""
    requests: Mapping[int, Request] = field(default_factory=dict)
    """Registers and memory besides the input, by the rows of an input."""

    @property
    def keeps(self) -> bool:
        """Weights and parameters stay on the chip from run to run."""
        return AGAIN in self.entries

    def entry(self, *, again: bool, bits: int = OPERAND_BITS) -> str:
        """Return the name of the program of a run, with ``again`` of one behind another.

        Nested weights are read at ``bits``.
        """
        return AGAIN if again and self.keeps else entry_at(ENCODE, bits)

    def predict_whole(self, latency: int, interval: int = 1, *, bits: int = OPERAND_BITS) -> int:
        """Return the cycles that are expected of the longest input, if no run has been before.

        External memory has some latency and cycles for each word. Nested weights are read at
        ``bits``.
        """
        registers = self.beside(self.input.rows).registers
        return self.expect(self.entry(again=False, bits=bits), registers, latency, interval).cycles

    def runs(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the inputs of each run: a batch each, the last one repeated if need be."""
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
        """Bytes of the output."""
        return self.output.bytes

    @property
    def least_rows(self) -> int:
        """Rows of the shortest input."""
        return min(self.requests)

    def output_rows(self, rows: int) -> int:
        """Return the rows of the output of an input of some rows, of one input of a batch."""
        missing = self.input.rows // self.batch - rows if self.follows else 0
        return self.output.rows // self.batch - missing

    def beside(self, rows: int) -> Request:
        """Return the request of an input of some rows, without the input itself."""
        return self.requests[rows]

    def request(self, values: NDArray[np.floating]) -> Request:
        """Return the memory contents and registers that an inference needs before its start.

        ``values`` is one input, [tokens, features], with fewer rows where the model takes
        variable lengths; without linear embedding the rows are those that
        :func:`lookup` gives. Of a batch it is the rows of all inputs. Raises :class:`InputError`
        where it has another shape.
        """
        rows, shape, source = len(values), np.shape(values), self.input
        least, longest = self.least_rows, source.rows
        if shape[1:] != (source.columns,) or not least <= rows <= longest:
            most = "at most " if least < longest else ""
            raise InputError(
                f"An input of model {self.name} must have the shape "
                f"[{most}{longest}, {source.columns}], not {list(shape)}"
            )
        data = np.zeros((longest, source.columns))
        data[:rows] = values
        integers = quantize(data, source).astype("<i2" if source.wide else np.int8)
        other = self.beside(rows)
        return Request(((self.input_addr, integers.tobytes()), *other.writes), other.registers)

    def output_integers(self, data: bytes) -> NDArray[np.int64]:
        """Return one output's integers, [rows, columns], of a batch those of all inputs."""
        values = np.frombuffer(data, "<i2" if self.output.wide else np.int8)
        return values.reshape(self.output.rows, self.output.columns).astype(np.int64)

    def read_output(self, data: bytes) -> NDArray[np.float64]:
        """Return one output, [rows, columns], in the model's own units."""
        real: NDArray[np.float64] = self.output.scale * self.output_integers(data).astype(float)
        return unit_rows(real) if self.unit else real
