"""Compilation of an encoder to a program and a memory image, for any configuration."""

from dataclasses import dataclass, replace

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import Opcode
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Weights
from celosia.generators.graph.operations import Pool
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.batch import batched
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.early import check_layers, check_memory, check_rows, check_units
from celosia.generators.lower.fitting import again
from celosia.generators.lower.lower import Lowered
from celosia.generators.lower.rows import pool_bytes
from celosia.generators.lower.schedule import schedule
from celosia.generators.lower.search import PlacedTrial
from celosia.generators.program.calls import Index, registers
from celosia.generators.program.draft import Repeat, Written, flatten
from celosia.generators.program.executable import ENCODE, Fill
from celosia.generators.quantize.calibrate import Progress, Samples
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import Parting, parting
from celosia.generators.quantize.quantize import quantize_model
from celosia.generators.runtime.encoder_host import EncoderHost, Request

COMPARED = 16
"""Number of calibration inputs on which integers are compared with floats."""


@dataclass(frozen=True, kw_only=True)
class Options(Quantization):
    """Compiler options that change a program's results or its speed."""

    sparse: bool = False
    """True if matrices are coded for the zero-skip unit if that is faster."""
    batch: int = 1
    """Number of inputs of one run: weights are loaded once for all, and one's products hide the
    others' softmax and norm."""
    search: bool = True
    """True to search the fastest of many programs; otherwise the first that fits is used."""


@dataclass(frozen=True, kw_only=True)
class CompiledModel(EncoderHost, Artefact[ModelDescription]):
    """A compiled encoder: programs, memory image, and the quantized model."""

    loops: int
    """Number of loops in the program that are not inside another."""
    plan: Choices
    """The choices that made the program."""
    spilled_bytes: int
    """External memory after the image, for tensors' blocks that leave the scratchpad."""
    passing_bytes: int
    """Bytes of the image for tensors whose blocks leave between two products."""
    kept_bytes: int
    """Bytes in external memory of weights and parameters that stay on the chip between runs."""
    left_out: int
    """Tiles of zeros that are left out of all weights."""

    @property
    def written(self) -> list[Written]:
        """List of the tensor parts that vector instructions write, in execution order."""
        return self.entries[ENCODE].written

    def length(self, rows: int | None) -> int:
        """Return the sequence length (tokens) for an input of ``rows`` rows.

        The result is the longest length if ``rows`` is None, or if the model has a fixed length.
        """
        model, source = self.graph.description, self.graph.input
        return model.sequence - (0 if rows is None or not model.variable else source.rows - rows)

    def least_bytes(
        self, rows: int | None = None, *, again: bool = False, bits: int = OPERAND_BITS
    ) -> int:
        """Return the number of bytes that an inference must load: weights, parameters and input.

        The input has ``rows`` rows, by default the largest number. If ``again`` is true, the
        weights and parameters that stay on the chip are not counted, because an earlier run has
        loaded them. If weights are nested, only the upper ``bits`` bits of each weight (8, 4 or 2)
        are read.
        """
        source, missing = self.graph.input, 0
        if rows is not None and not source.stride % self.config.mem_bytes:
            missing = self.batch * source.rows - rows
        kept = self.passing_bytes + (self.kept_bytes if again else 0)
        kept += self.graph.weight_bytes - self.graph_at(bits).weight_bytes
        return len(self.image) - self.output_piece.size - missing * source.stride - kept

    def macs(self, rows: int | None = None) -> int:
        """Return the number of multiply-accumulates that the results of a run need.

        Products of padding are not counted. The input has ``rows`` rows, by default the largest
        number.
        """
        return self.batch * self.graph.macs(self.length(rows))

    def parting(
        self, weights: Weights, samples: Samples, progress: Progress | None = None
    ) -> Parting:
        """Return the integer model's errors (:class:`Parting`), compared with the float model.

        They are the errors of the output and of inner tensors, for the first :data:`COMPARED`
        inputs in ``samples``. ``weights`` are the float model's weights. ``progress(done, count)``
        is called with the number of inputs done and the number of all inputs.
        """
        some = [np.asarray(values) for values in samples[:COMPARED]]
        return parting(self.graph, weights, some, progress=progress)


def compile_model(
    description: ModelDescription,
    weights: Weights,
    calibration_inputs: Samples,
    config: Config,
    options: Options | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Return a compiled encoder: calibrated, quantized, and lowered to a program.

    ``calibration_inputs`` is a list of inputs, or one array of inputs. The compiler searches for
    the fastest tiling (``celosia.generators.lower.schedule``), unless ``options.search`` is false.
    ``progress`` is called with the number of steps done and the number of all steps. At first a
    step is the calibration with one input; afterwards it is the quantization of one operation.

    Raises :class:`InputError` if the model cannot run on the configuration, and
    :class:`celosia.generators.lower.fitting.FitError` if the model is too large. The message names
    the configuration field that is too small.
    """
    options = options or Options()
    if options.sparse and not config.sparse_lanes:
        raise InputError(f"Skipping zero weights needs sparse_lanes, which {config.name} lacks")
    check_units(description, weights, config, options)
    check_rows(description, config)
    if not options.sparse:
        check_memory(description, weights, config, options)

    check_layers(
        description,
        weights,
        config,
        options,
        lambda some: quantize_model(some, weights, calibration_inputs[:1], config, options),
        lambda graph: compile_quantized(graph, config, replace(options, search=False)),
    )
    quantized = quantize_model(description, weights, calibration_inputs, config, options, progress)
    return compile_quantized(quantized, config, options)


def compile_quantized(quantized: QuantizedModel, config: Config, options: Options) -> CompiledModel:
    """Return a compiled encoder from a model that is quantized for the configuration.

    Raises the same errors as :func:`compile_model` if the model cannot run on the configuration or
    is too large.
    """
    model = batched(quantized, options.batch)

    def scheduled(config: Config, *, search: bool = False) -> PlacedTrial:
        return schedule(model, config, batch=options.batch, sparse=options.sparse, search=search)

    with again(config, scheduled):
        trial = scheduled(config, search=options.search)
    return compiled_trial(quantized, config, trial, options.batch)


def compiled_trial(
    quantized: QuantizedModel, config: Config, trial: PlacedTrial, batch: int
) -> CompiledModel:
    """Return the compiled encoder with the program of ``trial``.

    ``trial`` is the candidate that the search for a tiling has chosen. Its program computes
    ``batch`` inputs at once. ``quantized`` is the quantized model for a single input.
    """
    placed, program = trial.source, trial.program
    lowered, nodes = placed.lowered, trial.assembly.programs[ENCODE].nodes
    kept = [draft for draft in flatten(nodes) if draft.once and draft.opcode == Opcode.LOAD]
    spilled = 0 if placed.spilled is None else placed.spilled.bytes
    entry, result = quantized.input, quantized.output
    output = replace(result, rows=batch * result.rows)
    image = lowered.image
    end = max(len(image), lowered.output.addr + output.bytes)
    return CompiledModel(
        config=config,
        words=program.words,
        entries=program.entries,
        name=quantized.description.name,
        graph=quantized,
        setup=[Fill(image.tobytes(), [], [])],
        input=replace(entry, rows=batch * entry.rows),
        output=output,
        input_piece=lowered.input,
        output_piece=lowered.output,
        memory_bytes=max(end, len(image) + spilled),
        unit=quantized.description.unit,
        follows=quantized.description.variable and result.rows == quantized.description.sequence,
        batch=batch,
        requests=_requests(quantized, lowered, config, batch),
        loops=sum(isinstance(node, Repeat) for node in nodes),
        plan=placed.choices,
        spilled_bytes=spilled,
        passing_bytes=lowered.passing_bytes,
        kept_bytes=sum(load.number("m") * load.number("row_bytes") for load in kept),
        left_out=lowered.left_out,
    )


def _requests(
    model: QuantizedModel, lowered: Lowered, config: Config, batch: int
) -> dict[int, Request]:
    """Return the data that a host writes besides an input, by the input's number of rows.

    If the model averages the rows of a sequence of variable length, there are constants with which
    the machine averages only these rows.
    """
    described, longest, requests = model.description, batch * model.input.rows, dict[int, Request]()
    for rows in range(1 if described.variable else longest, longest + 1):
        length, writes = described.sequence + rows - longest, list[tuple[int, bytes]]()
        if lowered.pool is not None:
            (pool, *_) = (op for op in model.after if isinstance(op, Pool))
            data = pool_bytes(pool, pool.source.rows, length, config)
            writes.append((lowered.pool.addr, data.tobytes()))
        requests[rows] = Request(tuple(writes), registers(lowered.call, {Index.ROWS: length}))
    return requests
