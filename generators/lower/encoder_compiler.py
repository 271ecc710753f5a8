"""From a trained model to a program and its memory image, for any configuration that has room."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Weights
from celosia.generators.graph.fewer_planes import coarser
from celosia.generators.graph.operations import Pool
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.batch import batched
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.early import check_layers, check_memory, check_rows, check_units
from celosia.generators.lower.fitting import again
from celosia.generators.lower.rows import pool_bytes
from celosia.generators.lower.schedule import schedule
from celosia.generators.lower.search import Trial
from celosia.generators.program.draft import LENGTH_REGISTER, Rows, Written, row_counts
from celosia.generators.program.executable import AGAIN, ENCODE, Executable, entry_at
from celosia.generators.program.image import Bytes, Piece
from celosia.generators.program.predict import Prediction
from celosia.generators.quantize.calibrate import Samples
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import Parting, parting
from celosia.generators.quantize.quantize import quantize_model
from celosia.generators.runtime.interface import Machine

COMPARED = 16
"""Calibration inputs on which integers are compared with floats."""


@dataclass(frozen=True, kw_only=True)
class Options(Quantization):
    """Choices that change a program's numbers or its speed."""

    sparse: bool = False
    """Matrices are coded for the zero-skip unit where that is faster."""
    batch: int = 1
    """Inputs of one run: weights are loaded once for all, and one's products hide the others'
    softmax and norm."""
    search: bool = True
    """The fastest of many programs is searched for; without it the first that fits is taken."""


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


@dataclass(frozen=True)
class CompiledModel(Executable):
    """A model as a machine runs it.

    Write ``image`` to external memory from address 0 and load ``words``. Then, for each
    inference: do what ``request`` asks for, start at word 0, and give the ``output_count`` bytes
    at ``output_addr`` to ``read_output``.
    """

    quantized: QuantizedModel
    image: Bytes
    input_piece: Piece
    output_piece: Piece
    pool_piece: Piece | None
    rows: Rows
    """The rows that the host counts in registers, see :func:`row_counts`."""
    loops: int
    """Loops in the program that are not in another."""
    plan: Choices
    """The choices that made the program."""
    spilled_bytes: int = 0
    """External memory behind the image that tensors' blocks leave for."""
    batch: int = 1
    """Inputs of one run, the rows of all one below the other."""
    kept_bytes: int = 0
    """Weights and parameters that stay on the chip from one run to the next, in external memory."""

    def predict(
        self,
        latency: int,
        interval: int = 1,
        rows: int | None = None,
        *,
        again: bool = False,
        bits: int = OPERAND_BITS,
    ) -> Prediction:
        """Return what is to be expected of a run on a memory of some latency and pace.

        ``rows`` are those of the input; all of them without. With ``again`` a run has been before.
        Nested weights are read at so many ``bits``.
        """
        name = self.entry(again=again, bits=bits)
        return self.expect(name, self.registers(self.length(rows)), latency, interval)

    @property
    def keeps(self) -> bool:
        """Weights and parameters stay on the chip from run to run."""
        return AGAIN in self.entries

    def entry(self, *, again: bool, bits: int = OPERAND_BITS) -> str:
        """Return the name of the program of a run, with ``again`` of one behind another.

        Nested weights are read at so many ``bits``.
        """
        return AGAIN if again and self.keeps else entry_at(ENCODE, bits)

    @property
    def written(self) -> list[Written]:
        """Tensors that vector instructions write, in the order in which they run."""
        return self.entries[ENCODE].written

    def model_at(self, bits: int) -> QuantizedModel:
        """Return the model of which so many bits of nested weights are read."""
        return coarser(self.quantized, bits)

    def length(self, rows: int | None) -> int:
        """Return the sequence's length of an input of some rows, or of the longest."""
        model, source = self.quantized.description, self.quantized.input
        return model.sequence - (0 if rows is None or not model.variable else source.rows - rows)

    def registers(self, length: int) -> dict[int, int]:
        """Return the registers of an inference of some length."""
        numbers = {LENGTH_REGISTER: length} if self.quantized.description.variable else {}
        return numbers | row_counts(self.rows, length)

    def least_bytes(
        self, rows: int | None = None, *, again: bool = False, bits: int = OPERAND_BITS
    ) -> int:
        """Return the bytes that an inference of some rows must read: weights, parameters, input.

        With ``again`` a run has been before, and what stays on the chip is there. Nested weights
        are read at so many ``bits``.
        """
        source, missing = self.quantized.input, 0
        if rows is not None and not source.stride % self.config.mem_bytes:
            missing = self.batch * source.rows - rows
        kept = self.kept_bytes if again else 0
        kept += self.quantized.weight_bytes - self.model_at(bits).weight_bytes
        return len(self.image) - self.output_piece.size - missing * source.stride - kept

    def macs(self, rows: int | None = None) -> int:
        """Return the useful products of a run on an input of some rows, or on a batch."""
        return self.batch * self.quantized.macs(self.length(rows))

    @property
    def memory_bytes(self) -> int:
        """External memory that the model takes (bytes)."""
        end = max(len(self.image), self.output_addr + self.output_count)
        return max(end, len(self.image) + self.spilled_bytes)

    @property
    def input(self) -> Tensor:
        """The input of a run, of a batch the rows of all inputs."""
        return replace(self.quantized.input, rows=self.batch * self.quantized.input.rows)

    @property
    def output(self) -> Tensor:
        """The output of a run, of a batch the rows of all inputs."""
        return replace(self.quantized.output, rows=self.batch * self.quantized.output.rows)

    def runs(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the inputs of each run: as many as a batch has, the last one again if need be."""
        groups = (inputs[at : at + self.batch] for at in range(0, len(inputs), self.batch))
        return [
            np.concatenate([*group, *[group[-1]] * (self.batch - len(group))]) for group in groups
        ]

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

    def request(self, values: NDArray[np.floating]) -> "Request":
        """Return what an inference needs before its start.

        ``values`` is one input, [tokens, features], with fewer rows where the model takes
        variable lengths; without linear embedding the rows are those that
        :func:`lookup` gives. Of a batch it is the rows of all inputs. Raises :class:`InputError`
        where it has another shape.
        """
        model, source = self.quantized.description, self.input
        rows, shape, longest = len(values), np.shape(values), source.rows
        short = model.variable and 1 <= rows <= longest
        if shape[1:] != (source.columns,) or not (short or rows == longest):
            most = "at most " if model.variable else ""
            raise InputError(
                f"An input of model {model.name} must have the shape "
                f"[{most}{longest}, {source.columns}], not {list(shape)}"
            )
        data = np.zeros((longest, source.columns))
        data[:rows] = values
        length = self.length(rows)
        writes = [(self.input_addr, self.quantized.quantize_input(data).tobytes())]
        if self.pool_piece is not None:
            ops = [op for op in self.quantized.after if isinstance(op, Pool)]
            reciprocals = pool_bytes(ops[0], ops[0].source.rows, length, self.config)
            writes.append((self.pool_piece.addr, reciprocals.tobytes()))
        return Request(tuple(writes), self.registers(length))

    def parting(self, weights: Weights, samples: Samples) -> Parting:
        """Return how far the integers are from floats on the first calibration inputs."""
        some = [np.asarray(values) for values in samples[:COMPARED]]
        return parting(self.quantized, weights, some)

    def output_integers(self, data: bytes) -> NDArray[np.int64]:
        """Return one output's integers, [rows, columns], of a batch those of all inputs."""
        values = np.frombuffer(data, "<i2" if self.output.wide else np.int8)
        return values.reshape(self.output.rows, self.output.columns).astype(np.int64)

    def read_output(self, data: bytes) -> NDArray[np.float64]:
        """Return one output, [rows, columns], in the model's own units."""
        return self.quantized.dequantize_output(self.output_integers(data))


def compile_model(
    description: ModelDescription,
    weights: Weights,
    calibration_inputs: Samples,
    config: Config,
    options: Options | None = None,
) -> CompiledModel:
    """Return a model's program and memory image.

    ``calibration_inputs`` are inputs as :func:`forward` takes them, one
    array each or all in one. How the model is cut is searched for
    (``celosia.generators.lower.schedule``).

    Raises :class:`InputError` where the model cannot run on the configuration, and
    :class:`celosia.generators.lower.fitting.FitError` where it is too large; the message names the
    field.
    """
    options = options or Options()
    if options.sparse and not config.sparse_lanes:
        raise InputError(f"Skipping zero weights needs sparse_lanes, which {config.name} lacks")
    check_units(description, weights, config, options)
    check_rows(description, config)
    if not options.sparse:
        check_memory(description, weights, config, options)

    def first(some: ModelDescription) -> object:
        quantized = quantize_model(some, weights, calibration_inputs[:1], config, options)
        return compile_quantized(quantized, config, replace(options, search=False))

    check_layers(description, weights, first)
    quantized = quantize_model(description, weights, calibration_inputs, config, options)
    return compile_quantized(quantized, config, options)


def compile_quantized(quantized: QuantizedModel, config: Config, options: Options) -> CompiledModel:
    """Return the program of a model that is quantized for the configuration.

    Raises :class:`InputError` as :func:`compile_model`.
    """
    model = batched(quantized, options.batch)

    def scheduled(config: Config, *, search: bool = False) -> Trial:
        return schedule(model, config, batch=options.batch, sparse=options.sparse, search=search)

    with again(config, scheduled):
        trial = scheduled(config, search=options.search)
    lowered, program = trial.placed.lowered, trial.program
    return CompiledModel(
        config,
        program.words,
        program.entries,
        quantized,
        lowered.image,
        lowered.input,
        lowered.output,
        lowered.pool,
        lowered.rows,
        program.loops,
        trial.plan,
        program.spilled_bytes,
        options.batch,
        program.kept_bytes,
    )
