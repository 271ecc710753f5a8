"""Compile a float model for a configuration: check options, calibrate the model and compile it."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from celosia.arch.arguments import check_type, checked, kinds_of
from celosia.arch.config import Config
from celosia.arch.errors import InputError, check_known, close
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.sample_files import read_samples
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.frontend.weights import model_names
from celosia.generators.graph.fewer_planes import check_bits
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.checks import check_described
from celosia.generators.lower.early import check_layers, check_memory
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.lower.equipment import equipped, paired
from celosia.generators.lower.text_compiler import TextOptions, compile_text
from celosia.generators.quantize.calibrate import Progress
from celosia.generators.quantize.parting import COMPARED, Parting, parting
from celosia.generators.runtime.text_lengths import check_length
from celosia.generators.studies.mixtures import Show, search_formats
from celosia.models import Inputs, Model
from celosia.programs import Program
from celosia.tb.models.digits_model import read_digits
from celosia.tb.models.run_inputs import CALIBRATION, check_room

_RANDOM = 32
"""Random inputs for calibration if a model has no others."""
_Kind = TypeVar("_Kind", Options, TextOptions)
_OF_DECODERS = ("kv_bits", "places", "whole", "block", "texts", "length", "folded", "deferred")
_OF_ENCODERS = ("percentile", "per_channel")


@contextmanager
def quiet(_title: str) -> Iterator[Progress]:
    """Yield a progress function that ignores every report."""
    yield lambda _done, _total: None


@checked(memory_bytes=1)
def compile(
    model: Model,
    config: Config | None = None,
    *,
    calibration: Inputs | Path | None = None,
    loss: float | None = None,
    memory_bytes: int | None = None,
    bits: int = OPERAND_BITS,
    fixed: bool = False,
    **options: Any,
) -> Program:
    """Compile a model for a configuration, by default ``small``, or ``story`` for a language model.

    ``calibration`` is data on which the float model is run, to choose the scales of the integer
    model. It is either inputs as :meth:`Model.floats` accepts them, or the path of a file of inputs
    or texts. By default it is, depending on the model, training images, sentences, texts generated
    by the language model itself, or random numbers (with a warning).

    If ``loss`` is not None, the compiler searches for the smallest weight formats with which the
    model loses at most ``loss`` compared with INT8 weights. The unit is percentage points of
    accuracy for an encoder, and nats of log-likelihood per token for a language model.
    ``memory_bytes`` is the size of the machine's external memory, by default all that the
    configuration can address. A run can omit the lower bits of weights in a nested format; ``bits``
    is the number of upper bits that it reads of each such weight. If an option needs a unit that
    the configuration lacks, the compiler adds the unit to the configuration. If ``fixed`` is true,
    the configuration is not changed, and a missing unit raises :class:`InputError`. ``options`` are
    keyword arguments for the fields of :class:`celosia.generators.lower.encoder_compiler.Options`,
    or :class:`celosia.generators.lower.text_compiler.TextOptions` for a language model.

    Raises :class:`InputError` if the model, an option or the calibration is invalid, or the model
    does not fit the configuration. Warns if the integer model's outputs differ much from those of
    the float model.
    """
    asked = {"loss": loss, "memory_bytes": memory_bytes, "bits": bits, "fixed": fixed}
    if isinstance(model.source, TextSource):
        texts = None if calibration is None else _texts(model, calibration)
        chosen = _options(TextOptions, model, options)
        program = compile_decoder(model, config or PRESETS["story"], texts, chosen, **asked)
    else:
        inputs = calibration_inputs(model, calibration)
        chosen = _options(Options, model, options)
        program = compile_encoder(model, config or PRESETS["small"], inputs, chosen, **asked)
    if program.parting is not None and program.parting.warning:
        warnings.warn(program.parting.warning, stacklevel=2)
    return program


def _options(kind: type[_Kind], model: Model, values: dict[str, Any]) -> _Kind:
    """Return options after checks of their names, of their types and of the weights they name."""
    kinds = {field.name: field.type for field in fields(kind)}
    text = kind is TextOptions
    for name, value in values.items():
        check_known("option", name, sorted(kinds))
        if name in (_OF_ENCODERS if text else _OF_DECODERS):
            whose = "encoders" if text else "language models"
            raise InputError(f"Option {name} is for {whose}, which model {model.name} is not")
        check_type(f"Option {name}", kinds_of(kinds[name]), value)
    weights = model.source.description.shapes()
    for name in values.get("chosen", ()):
        if name not in weights:
            raise InputError(f"Model {model.name} has no weight {name!r};{close(name, weights)}")
    return kind(**values)


def calibration_inputs(model: Model, calibration: Inputs | Path | None) -> Sequence[Any]:
    """Return the inputs that calibrate an encoder, after the host's preprocessing.

    If ``calibration`` is a path, the inputs are read from this file; otherwise they are
    ``calibration`` itself. If it is None, they are training images for a digits model,
    sentences for an encoder with a tokenizer, and random numbers for any other encoder (with a
    warning).
    """
    source = model.source
    assert isinstance(source, Source)
    if calibration is None and model.name in model_names():
        return [*read_digits(model.name, source)[0]]
    if calibration is None and source.tokenizer is not None:
        calibration = CALIBRATION
    if isinstance(calibration, Path):
        return read_samples(calibration, source, calibration=True)
    if calibration is None:
        warnings.warn(
            f"model {model.name} is calibrated on random inputs; give inputs like those to come as "
            "calibration",
            stacklevel=3,
        )
        calibration = model.examples(_RANDOM)
    return model.prepared(calibration)


def _texts(model: Model, calibration: Inputs | Path) -> list[list[int]]:
    assert isinstance(model.source, TextSource)
    if isinstance(calibration, Path):
        return model.source.read_calibration(calibration)
    return [tokens.tolist() for tokens in model.prepared(calibration)]


def compile_encoder(
    model: Model,
    config: Config,
    inputs: Sequence[Any],
    options: Options,
    *,
    loss: float | None = None,
    memory_bytes: int | None = None,
    bits: int = OPERAND_BITS,
    fixed: bool = False,
    show: Show = quiet,
) -> Program:
    """Compile an encoder, with integer scales calibrated on ``inputs``; return the program.

    ``inputs`` are preprocessed like the result of :func:`calibration_inputs`. ``show(title)`` is
    called for each step of the compilation, and returns a context manager. The context manager's
    value is a function ``update(done, total)``, which is called with the numbers of finished parts
    and of all parts of the step. The other arguments are those of :func:`compile`.
    """
    source = model.source
    assert isinstance(source, Source)
    check_bits([bits], options.weights)
    machine = config if fixed else equipped(config, options)
    options, summary = search_formats(model.name, None, machine, options, loss, show)
    machine = config if fixed else equipped(config, options)
    if memory_bytes is not None and not options.sparse:
        check_memory(source.description, source.weights, machine, options, memory_bytes)
    with show(f"{model.name} on {config.name}") as update:
        code = compile_model(source.description, source.weights, inputs, machine, options, update)
        if memory_bytes is not None:
            check_room(code, memory_bytes)
        compared = [np.asarray(values) for values in inputs[:COMPARED]]
        errors = parting(code.graph, source.weights, compared, progress=update)
    made = _made(options, loss, code.graph.weight_bytes, errors)
    return Program(
        code,
        made,
        model,
        options=options,
        inputs=inputs,
        parting=errors,
        summary=summary,
        names=names_of(model),
        bits=bits,
    )


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names of an encoder's output columns, such as classes; empty if unknown."""
    assert isinstance(model.source, Source)
    if model.source.labels or model.name not in model_names():
        return model.source.labels
    return tuple(map(str, range(model.source.description.classes)))


def compile_decoder(
    model: Model,
    config: Config,
    texts: Sequence[Sequence[int]] | None,
    options: TextOptions,
    *,
    loss: float | None = None,
    memory_bytes: int | None = None,
    bits: int = OPERAND_BITS,
    fixed: bool = False,
    prompts: Sequence[str] = (),
    steps: int = 1,
    show: Show = quiet,
) -> Program:
    """Compile a language model, calibrated on ``texts``: a list of token numbers for each text.

    For an encoder-decoder, ``texts`` are source texts. If ``texts`` is None, the texts depend on
    the model. A decoder generates them itself. An encoder-decoder uses the source texts in its
    folder, or random texts if the folder has none. ``show`` reports progress as in
    :func:`compile_encoder`; the other arguments are those of :func:`compile`. Raises
    :class:`InputError` before any work if one of the ``prompts``, continued by ``steps`` tokens, is
    longer than the model allows.
    """
    source = model.source
    assert isinstance(source, TextSource)
    described = source.description
    check_bits([bits], options.weights)
    machine = config if fixed else equipped(config, options)
    check_described(described, machine, wide_functions=options.wide_functions)
    capacity = options.context or min(described.positions, machine.vector.longest_row)
    if capacity > described.positions:
        raise InputError(
            f"Context must be at most the {described.positions} tokens that model {described.name} "
            f"was made for, not {capacity}"
        )
    for prompt in prompts:
        check_length(described, source.tokenizer.encode(prompt), steps, described.positions)
    options, summary = search_formats(model.name, source, machine, options, loss, show)
    if not fixed:
        machine = equipped(config, options, options.batch * (1 + described.heads))

    def programs(decoder: Decoder, *, search: bool = True) -> Artefact:
        own = machine if fixed else paired(machine, decoder)
        room = options.context or min(decoder.places, own.vector.longest_row)
        return compile_text(
            decoder,
            own,
            context=room,
            sinks=min(options.sinks, room - 1),
            memory_bytes=memory_bytes,
            sparse=options.sparse,
            recompute=options.recompute,
            texts=options.batch,
            search=search,
        )

    if not options.sparse:
        check_memory(described, source.weights, machine, options, memory_bytes)
    with show("First layers"):
        check_layers(
            described,
            source.weights,
            machine,
            options,
            lambda some: source.first_layers(some, options),
            lambda graph: programs(graph, search=False),
        )
    with show("Calibration") as update:
        decoder, errors = source.calibrate(texts, options, update)
    with show(f"{model.name} on {config.name}"):
        code = programs(decoder)
    return Program(
        code,
        _made(options, loss, decoder.weight_bytes, errors),
        model,
        options=options,
        inputs=texts,
        parting=errors,
        summary=summary,
        bits=bits,
    )


def _made(
    options: Options | TextOptions, loss: float | None, size: int, errors: Parting
) -> dict[str, Any]:
    """Return figures about the quantization of a model, by name."""
    return {
        "weights": options.weights if loss is None else "auto",
        "group": options.group,
        "activations": options.activations,
        "low_rank": options.low_rank,
        "functions": "wide" if options.wide_functions else "table",
        "sparse": options.sparse,
        "weight_bytes": size,
        "calibration": errors.figures(),
    }
