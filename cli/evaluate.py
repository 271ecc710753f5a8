"""celosia evaluate: the accuracy of a quantized model, compared with its float model."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.cli.format_options import MODEL_KEYS, Formats, quantize_options
from celosia.cli.input_options import (
    context_option,
    inputs_option,
    report_model,
    run_compiled,
    run_encoder,
)
from celosia.cli.model_options import RANGES
from celosia.cli.options import (
    config_choice,
    refuse_given,
    simulator_option,
)
from celosia.cli.output import progress, report, say, warn
from celosia.cli.paths import FILE, MODEL
from celosia.cli.run import folder_program
from celosia.cli.text_options import compiled_text, quantized
from celosia.cli.tree import Command
from celosia.generators.export.compiled_folder import is_compiled
from celosia.generators.frontend.sample_files import read_answers
from celosia.generators.frontend.text_sources import is_text, load_text
from celosia.generators.graph.fewer_planes import is_nested, with_upper_bits
from celosia.generators.lower.residence import Cache
from celosia.generators.lower.text_compiler import skips_zeros
from celosia.generators.lower.weights import coded_bytes
from celosia.generators.quantize.multipliers import narrowed_parameters
from celosia.generators.quantize.options import Quantization
from celosia.generators.studies.closeness import closeness
from celosia.generators.studies.mixtures import search_formats
from celosia.generators.studies.perplexity import measure, read_texts
from celosia.programs import Program
from celosia.tb.machine.memory_timing import FAR
from celosia.tb.machine.simulators import check_simulator

_COUNT = 16  # inputs that a model makes up or has


@click.command(cls=Command, example="digits --count 100")
@click.argument("model", type=MODEL)
@click.option("--text", type=FILE, help="Perplexity on texts, <|endoftext|> in between.")
@click.option(
    "--answers",
    type=FILE,
    help="Right answers: of --inputs the class of each, .npy or lines; without them questions with "
    "answers, or texts with classes, a line each with a tab between.",
)
@inputs_option
@click.option(
    "--calibration",
    type=FILE,
    help="Texts or inputs to calibrate on; with --text the number of texts that it makes up.",
)
@click.option("--count", type=click.IntRange(1), help="Inputs, answers or texts; all without it.")
@context_option
@config_choice("small; story for a language model's answers")
@simulator_option
@quantize_options(MODEL_KEYS)
def evaluate(
    model: str,
    text: Path | None,
    configured: Callable[[str], Config],
    simulator: str,
    **values: Any,
) -> None:
    """Measure the accuracy or perplexity of the quantized MODEL and of its float model on data.

    With --inputs, or with --answers (known right answers), the quantized model runs on a simulated
    machine, and its tensors are compared with those of the golden machine. With --text, a NumPy
    reference computes the quantized model's outputs, without a machine, and the command reports
    perplexity.

    Without these options, the command measures the distance between the outputs of the quantized
    model and of the float model. A model that recognizes digits is measured on test images. A
    language model is measured on texts that the model itself generates. The command measures up to
    three quantizations: with activation functions as lookup tables, with activation functions in
    INT16, and with attention in INT16.
    """
    check_simulator(simulator)
    data = [name for name in ("answers", "inputs") if values[name]]
    if values["inputs"]:
        values |= {"labels": values["answers"], "answers": None}
    if text is not None and data:
        raise InputError(f"Options --text and --{data[0]} exclude each other")
    if text is not None:
        _perplexity(model, text, configured("small"), values)
    elif not data:
        _closeness(model, values)
    elif is_compiled(model):
        program = folder_program(model)
        if program.code.reads_tokens:
            _answers(model, program, data, simulator, values)
        else:
            result = run_compiled(program, simulator, values, FAR)
            report_model(f"{model} on {result['config']}", result)
    elif is_text(model):
        _answers(model, None, data, simulator, values | {"config": configured})
    else:
        result = run_encoder(model, configured("small"), simulator, values, FAR)
        report_model(f"{model} on {result['config']}", result)


def _answers(
    model: str,
    program: Program | None,
    data: list[str],
    simulator: str,
    values: Mapping[str, Any],
) -> None:
    """Report the share of right answers of a language model, compiled already or now."""
    if not values["answers"]:
        raise InputError(f"Option --{data[-1]} is not for {model}, which is a language model")
    values["formats"].refuse_bits("--answers")
    answers = read_answers(values["answers"])[: values["count"]]
    if program is None:
        prompts = [source for source, _ in answers]
        program = compiled_text(model, values["config"]("story"), values, prompts=prompts)
    with progress("Answers") as update:
        result = program.answer(answers, simulator, progress=update)
    shown = {name: value for name, value in result.items() if name != "wrong"}
    report(f"{result['model']} on {result['config']}", [shown], result)


def _closeness(model: str, values: Mapping[str, Any]) -> None:
    """Report the distance of a model's outputs from its floats."""
    with progress(f"{model}, calibration") as update:
        count = values["count"] or _COUNT
        measured = closeness(model, None, PRESETS["small"], count, update)
    compared = {name: close.figures() for name, close in measured.items()}
    shown = ("inputs", "cosine", "square_error", "agreement", "score_error")
    rows = [
        {"activations": name, **{key: figures[key] for key in shown}}
        for name, figures in compared.items()
    ]
    report(f"{model}, integers against floats", rows, compared)


def _perplexity(
    model: str,
    path: Path,
    config: Config,
    values: Mapping[str, Any],
) -> None:
    """Report the perplexity of a language model on texts.

    The configuration matters if it does not hold all bits of requantization parameters.
    """
    formats: Formats = values["formats"]
    refuse_given("--text", *RANGES)
    if values["kv"] == "recompute":
        raise InputError("Option --quantize kv=recompute is not for --text")
    samples = _samples(values["calibration"])
    bits = formats.one_bits("Perplexity is measured")
    slots, sinks = values["context"], values["sinks"]
    if slots:
        Cache(slots, sinks)
    texts = read_texts(path)
    count = values["count"]
    if count is not None and count > len(texts):
        raise InputError(f"Count of texts must be from 1 to {len(texts)}, not {count}")
    with progress(f"Reading {model}"):
        source = load_text(model)
    options = Quantization(**quantized(values, source.description, config), texts=samples)
    asked = source.description.name, source, config, options, formats.loss, progress
    options, summary = search_formats(*asked)
    if summary:
        say(f"celosia: {summary}", err=True)
    with progress("Calibration") as update:
        decoder = source.quantize(options, update)
    decoder = with_upper_bits(decoder, bits) if is_nested(decoder) else decoder
    decoder = narrowed_parameters(decoder, config)
    name = source.description.name
    with progress(name) as update:
        measured = measure(
            source,
            decoder,
            texts[:count],
            slots=slots,
            sinks=sinks if slots else 0,
            progress=update,
        )
    sparse = skips_zeros(config)
    result = {
        **asdict(measured),
        "perplexity": measured.perplexity,
        "kv_bits": options.kv_bits,
        "kv_blocks": options.block,
        **formats.figures,
        "sparse": sparse,
        "bits": bits,
        "chosen": dict(options.chosen) or None,
        "weight_bytes": coded_bytes(decoder, config) if sparse else decoder.weight_bytes,
        "texts": len(texts[:count]),
    }
    report(f"{name} on {path.name}", [result], result)
    if measured.cut:
        warn(
            f"{measured.cut} of {result['texts']} texts have more tokens than model {name} has "
            f"positions, {source.description.positions}; the rest of each is left out"
        )


def _samples(calibration: Path | None) -> int:
    """Return the number of texts that the model samples."""
    if calibration is None:
        return Quantization.texts
    if not str(calibration).isdecimal():
        raise InputError(
            f"Option --calibration takes a number of texts with --text, not {str(calibration)!r}"
        )
    return int(str(calibration))
