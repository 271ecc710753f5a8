"""Compilation of an encoder from float weights to a program and a memory image.

A model is calibrated, quantized and lowered to instructions for an accelerator configuration.
"""

from dataclasses import replace
from functools import partial

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.isa import Opcode
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.weights import Weights
from celosia.generators.graph.operations import Pool
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.assembly import calls_of
from celosia.generators.lower.batch import batched
from celosia.generators.lower.early import check_layers, check_memory, check_rows, check_units
from celosia.generators.lower.fitting import prepare_remedy
from celosia.generators.lower.lower import Lowered
from celosia.generators.lower.options import Options
from celosia.generators.lower.pooling import pool_bytes
from celosia.generators.lower.residence import Cache
from celosia.generators.lower.schedule import schedule
from celosia.generators.lower.search import PlacedTrial
from celosia.generators.program.draft import Repeat, flatten
from celosia.generators.program.executable import ENCODE, Fill
from celosia.generators.quantize.calibrate import Progress, Samples
from celosia.generators.quantize.quantize import quantize_model
from celosia.generators.runtime.host import Writes


def compile_model(
    description: ModelDescription,
    weights: Weights,
    calibration_inputs: Samples,
    config: Config,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Artefact:
    """Return a compiled encoder, after calibration and quantization of its float model.

    ``progress`` is called with the numbers of finished steps and of all steps. Raises
    :class:`InputError` if the model cannot run on the configuration, or does not fit its memories.
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
        progress,
    )
    quantized = quantize_model(description, weights, calibration_inputs, config, options, progress)
    return compile_quantized(quantized, config, options)


def compile_quantized(quantized: QuantizedModel, config: Config, options: Options) -> Artefact:
    """Return an encoder compiled from a model that is quantized for ``config``.

    Raises :class:`InputError` if the model cannot run on the configuration. Raises its subclass
    :class:`celosia.generators.lower.fitting.FitError` if the model is too large.
    """
    model = batched(quantized, options.batch)

    scheduled = partial(schedule, model, batch=options.batch, sparse=options.sparse)
    first = partial(scheduled, search=False)
    with prepare_remedy(config, partial(first, spills=False), first):
        trial = scheduled(config, search=options.search)
    return compiled_trial(quantized, config, trial, options.batch)


def compiled_trial(
    quantized: QuantizedModel, config: Config, trial: PlacedTrial, batch: int
) -> Artefact:
    """Return the compiled encoder with the program of ``trial``.

    ``trial`` has the program that the compiler has chosen. This program computes ``batch`` inputs
    at once. ``quantized`` is the quantized model for a single input.
    """
    placed, program = trial.source, trial.program
    lowered, nodes = placed.lowered, trial.assembly.programs[ENCODE].nodes
    kept = [draft for draft in flatten(nodes) if draft.once and draft.opcode == Opcode.LOAD]
    spilled = 0 if placed.spilled is None else placed.spilled.bytes
    entry, result = quantized.input, quantized.output
    output = replace(result, rows=batch * result.rows)
    image, places = lowered.image, quantized.description.sequence
    end = max(len(image), lowered.output.addr + output.bytes)
    return Artefact(
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
        calls=calls_of(trial.assembly.programs),
        places=places,
        cache=Cache(places, 0),
        writes=_writes(quantized, lowered, config, batch),
        loops=sum(isinstance(node, Repeat) for node in nodes),
        plan=placed.choices,
        spilled_bytes=spilled,
        passing_bytes=lowered.passing_bytes,
        kept_bytes=sum(load.number("m") * load.number("row_bytes") for load in kept),
        left_out=lowered.left_out,
    )


def _writes(
    model: QuantizedModel, lowered: Lowered, config: Config, batch: int
) -> dict[int, Writes]:
    """Return the memory that a host writes besides an input, by the input's number of rows.

    If the model averages the rows of a sequence of variable length, there are constants with which
    the machine averages only these rows.
    """
    described, longest, by_rows = model.description, batch * model.input.rows, dict[int, Writes]()
    pools = [op for op in model.after if isinstance(op, Pool)] if lowered.pool is not None else []
    for rows in range(1 if described.variable else longest, longest + 1):
        length, by_rows[rows] = described.sequence + rows - longest, ()
        if lowered.pool is not None:
            data = pool_bytes(pools[0], pools[0].source.rows, length, config)
            by_rows[rows] = ((lowered.pool.addr, data.tobytes()),)
    return by_rows
