"""Run encoders; compare tensors with the golden machine's, and outputs with the float model's."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.compiling import compile_encoder, quiet
from celosia.generators.frontend.source import Source
from celosia.generators.graph.fewer_planes import check_bits
from celosia.generators.lower.options import Options
from celosia.generators.reference.floats import forward
from celosia.generators.runtime.interface import Machine
from celosia.generators.studies.mixtures import Show, check_measured
from celosia.models import load
from celosia.programs import Program
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT, check_simulator
from celosia.tb.models.run_inputs import NO_FILES, Files, cosine, cut_inputs, read_inputs


@dataclass(frozen=True)
class EncoderResult:
    """Results of an encoder's runs, as :func:`measure` returns them.

    ``figures`` is a dictionary from the name of each measurement to its value. ``outputs`` has the
    model's output for each input, after the host's postprocessing. ``program`` is the compiled
    encoder.
    """

    figures: dict[str, Any]
    outputs: list[NDArray[np.float64]]
    program: Program


def run_files(
    model: str,
    config: Config,
    machine: str | Machine,
    files: Files = NO_FILES,
    *,
    tokens: int = 0,
    count: int | None = None,
    memory_bytes: int | None = None,
    options: Options | None = None,
    loss: float | None = None,
    show: Show = quiet,
    timing: MemoryTiming = PROMPT,
    bits: Sequence[int] = (OPERAND_BITS,),
) -> EncoderResult:
    """Compile an encoder, run it on the inputs in a file, and return measurements and outputs.

    - ``machine``: a simulator's name, or a connected machine with ``memory_bytes`` bytes of
      external memory. For a simulator, units that the options need are added to ``config``; for a
      connected machine ``config`` is not changed.
    - ``files``: paths of the files with inputs, calibration inputs and labels. Without inputs, an
      encoder for handwritten digits runs on the package's test images.
    - ``tokens``: as for :func:`celosia.load`.
    - ``count``: the encoder runs on the first ``count`` inputs, or on all of them if it is None.
    - ``options`` and ``loss``: as for :func:`celosia.compile`.

    All other arguments, and the result, are those of :func:`measure`. The result has two more
    measurements: ``cut`` is the number of inputs that were cut to the model's input length, and
    ``compile_seconds`` is the time of the compilation (seconds).

    Raises :class:`InputError` if the model, the simulator, a file or the count cannot be used.
    """
    if isinstance(machine, str):
        check_simulator(machine)
    check_single(files)
    if loss is not None:
        check_measured(model)
    with show(f"Reading {model}"):
        loaded = load(model, tokens=tokens)
        assert isinstance(loaded.source, Source)
        chosen, samples, labels = read_inputs(model, loaded.source, files, count)
    begin = time.perf_counter()
    program = compile_encoder(
        loaded,
        config,
        samples,
        options or Options(),
        loss=loss,
        memory_bytes=memory_bytes,
        fixed=not isinstance(machine, str),
        show=show,
    )
    seconds = time.perf_counter() - begin
    how: dict[str, Any] = {"labels": labels, "timing": timing, "bits": bits, "show": show}
    ran = measure(program, chosen, machine, **how)
    more = {"cut": cut_inputs(loaded.source, files, count), "compile_seconds": seconds}
    return replace(ran, figures=ran.figures | more)


def run_folder(
    program: Program,
    machine: str | Machine,
    files: Files = NO_FILES,
    *,
    count: int | None = None,
    show: Show = quiet,
    timing: MemoryTiming = PROMPT,
    bits: Sequence[int] = (OPERAND_BITS,),
) -> EncoderResult:
    """Run a compiled encoder on the inputs in a file, and return measurements and outputs.

    ``program`` is the compiled encoder, usually opened from the folder that ``celosia compile`` has
    written. The encoder must have been opened together with its float model (the model before
    quantization). All other arguments and the result are those of :func:`run_files`. The
    measurement ``compile_seconds`` is None, since nothing is compiled.
    """
    check_single(files)
    source = program.float_source
    chosen, _, labels = read_inputs(program.float_name, source, files, count)
    how: dict[str, Any] = {"labels": labels, "timing": timing, "bits": bits, "show": show}
    ran = measure(program, chosen, machine, **how)
    more = {"cut": cut_inputs(source, files, count), "compile_seconds": None}
    return replace(ran, figures=ran.figures | more)


def measure(
    program: Program,
    inputs: Sequence[NDArray[Any]],
    machine: str | Machine,
    *,
    labels: NDArray[np.int64] | None = None,
    show: Show = quiet,
    timing: MemoryTiming = PROMPT,
    bits: Sequence[int] = (OPERAND_BITS,),
) -> EncoderResult:
    """Run a compiled encoder on preprocessed inputs, and return measurements and outputs.

    ``program`` is the compiled encoder, which must have been opened with its float model. A run
    processes only the tokens of its input, even if the encoder accepts longer inputs. Run i,
    counted from 0, reads the upper ``bits[i % len(bits)]`` bits of each weight; less than 8
    requires nested weights (readable at several widths). ``labels`` has the index of the correct
    output column for each input.

    The field ``figures`` of the result is a dictionary of measurements. It has the entries of
    :meth:`celosia.tb.models.inference.Inferences.figures`, facts about the run such as ``config``,
    and these entries:

    - ``cosine_mean``, ``cosine_worst``: mean and least cosine between an output and the float
      model's output, both after the host's postprocessing.
    - ``similarities``: cosines between the first output and each other output. An output of several
      rows is replaced by the mean of its rows.
    - ``predictions``: for each output, the index of the column with the largest value; None if
      outputs are not single rows of several columns.
    - ``accuracy``, ``float_accuracy``, only with ``labels``: fraction of inputs whose prediction is
      the label, for the program and for the float model.
    - ``host``: names of the steps that the host computes.
    - ``calibration``: a dictionary with the errors of the integer model's outputs on the first
      calibration inputs (:class:`celosia.generators.quantize.parting.Parting`).
    """
    source = program.float_source
    rows = [source.rows(values) for values in inputs]
    on = machine if isinstance(machine, str) else "a board"
    check_bits(bits, program.made["weights"])
    cycles = None if on == "golden" else program.predicted(timing)
    how_long = "" if cycles is None else f", {cycles:,} cycles in the first run"
    with show(f"{program.name} on {program.config.name}, {on}{how_long}") as update:
        inferences = program.infer(rows, machine, timing, update, bits)
    description, weights = source.description, source.weights
    exact = [forward(description, weights, each[None])["output"][0] for each in inputs]
    # Without pooling a row stands for a token; those behind the last token mean nothing.
    outputs = [
        np.asarray(source.finish(output[: len(floats)], each), np.float64)
        for output, floats, each in zip(inferences.outputs, exact, inputs, strict=True)
    ]
    options = program.options
    figures = {
        "model": program.float_name,
        "config": program.config.name,
        "simulator": machine if isinstance(machine, str) else "board",
        "memory": timing.fields(),
        "count": len(inputs),
        "weights": program.made["weights"] if options is None else options.weights,
        "bits": [*bits],
        "tokens": description.tokens,
        "lengths": [len(values) for values in inputs],
        **_compared(outputs, [*map(source.finish, exact, inputs)], labels),
        "host": [step.name for step in (*source.before, *source.after)],
        "unused": list(source.unused),
        "names": list(source.labels),
        "calibration": program.made["calibration"],
        **inferences.figures(),
    }
    return EncoderResult(figures, outputs, program)


def check_single(files: Files) -> None:
    """Raise :class:`InputError` if ``files`` has more than one source of inputs.

    The sources are a file of inputs, a file of texts with their classes, and random inputs.
    """
    if sum(map(bool, (files.inputs, files.answers, files.random))) > 1:
        raise InputError("Options --inputs and --answers exclude each other")


def _compared(
    outputs: Sequence[NDArray[Any]],
    floats: Sequence[NDArray[Any]],
    labels: NDArray[np.int64] | None,
) -> dict[str, Any]:
    """Return the distance of outputs from the floats', and the classes of both."""
    means = [np.atleast_2d(output).mean(axis=0) for output in outputs]
    cosines = [cosine(*pair) for pair in zip(outputs, floats, strict=True)]
    figures: dict[str, Any] = {
        "cosine_mean": float(np.mean(cosines)),
        "cosine_worst": min(cosines),
        "similarities": [cosine(means[0], mean) for mean in means[1:]],
        "predictions": None,
    }
    if not all(output.size == output.shape[-1] > 1 for output in outputs):
        return figures
    predicted, exact = (np.array([each.argmax() for each in some]) for some in (outputs, floats))
    figures["predictions"] = predicted.tolist()
    if labels is not None:
        right = labels[: len(predicted)]
        figures["labels"] = right.tolist()
        figures["accuracy"] = float(np.mean(predicted == right))
        figures["float_accuracy"] = float(np.mean(exact == right))
    return figures
