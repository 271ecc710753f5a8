"""Options of the commands that continue a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.link import fingerprint
from celosia.cli.format_options import DECODER_KEYS, Formats, quantize_options
from celosia.cli.options import Command, added, given_options
from celosia.cli.output import cycles_table, progress, report, say, warn
from celosia.cli.paths import FILE
from celosia.generators.export.text_folder import is_compiled_text, load_compiled_text
from celosia.generators.frontend.text_sources import TextSource, TokenizerLike, load_text
from celosia.generators.graph.fewer_planes import check_bits
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.checks import check_described
from celosia.generators.lower.early import check_layers, check_memory
from celosia.generators.lower.equipment import equipped, paired
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.lower.text_program import TextProgram
from celosia.generators.quantize.options import DECODER_BALANCE, Quantization
from celosia.generators.quantize.parting import Parting
from celosia.generators.reference.sampling import Sampling
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.text_host import TextHost
from celosia.generators.runtime.text_lengths import check_length
from celosia.generators.studies.mixtures import mix_text
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.run_answers import run_answers
from celosia.tb.models.run_text import run_text
from celosia.tb.models.run_texts import run_texts

KEEP, RECOMPUTE = "keep", "recompute"
"""Choices of what is there of earlier tokens: keys and values, or what these are made of."""
_DECODER_OPTIONS = (
    click.option(
        "--tokenizer",
        type=FILE,
        help="The tokenizer's file; the checkpoint's own if there is one.",
    ),
    click.option("--context", default=0, help="Tokens that the cache has room for; 0 for all."),
    click.option("--sinks", default=4, show_default=True, help="First tokens that never leave it."),
)
_OPTIONS = (
    click.option(
        "--steps", "--tokens", default=64, show_default=True, help="Tokens to add, at most."
    ),
    click.option(
        "--temperature", default=0.0, show_default=True, help="0 takes the likeliest token."
    ),
    click.option(
        "--top-p", default=1.0, show_default=True, help="Share of probability drawn from."
    ),
)


def decoder_options(command: Command) -> Command:
    """Add what says how a decoder is compiled; :class:`DecoderOptions` takes the values."""
    return added(_DECODER_OPTIONS, command)


def text_options(command: Command) -> Command:
    """Add what says how a text goes on; :class:`TextOptions` takes the values."""
    return quantize_options(DECODER_KEYS)(decoder_options(added(_OPTIONS, command)))


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A decoder that a host can run."""

    program: TextHost
    tokenizer: TokenizerLike
    figures: Mapping[str, Any]
    """Figures of how it was made integers."""
    source: TextSource | None = None
    """The float model; none where the programs come from a folder."""


@dataclass(frozen=True, kw_only=True)
class DecoderOptions:
    """Options of compiling a decoder."""

    tokenizer: Path | None
    context: int
    sinks: int
    kv_bits: int
    kv_whole: int | None
    kv: str
    kv_blocks: int
    folded: bool
    deferred: bool
    calibration: Path | None
    formats: Formats

    def __post_init__(self) -> None:
        """Check what does not depend on the model."""
        if self.context < 0:
            raise InputError(f"Context must be 0 or more tokens, not {self.context}")
        if self.sinks < 0:
            raise InputError(f"Sinks must not be negative, not {self.sinks}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the options among a command's values."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})

    @property
    def quantization(self) -> Quantization:
        """The choice of integers."""
        return Quantization(
            kv_bits=self.kv_bits,
            whole=self.kv_whole,
            block=self.kv_blocks,
            folded=self.folded,
            deferred=self.deferred,
            **self.formats.quantization,
        )

    def compiled(
        self,
        checkpoint: str,
        config: Config,
        memory_bytes: int | None,
        *,
        fixed: bool,
        texts: int = 1,
        prompts: Sequence[str] = (),
        steps: int = 1,
    ) -> Compiled:
        """Return a checkpoint's programs, or those of a folder that ``celosia compile`` wrote.

        A configuration that is not ``fixed`` gets what the options need. Of a folder it is the
        folder's own; a fixed one must be as that. So many ``texts`` go on in the same runs.

        Raises :class:`InputError` where options are given that a compiled folder has answered, or
        it is for another number of texts; and before any work where the model cannot go on with one
        of the ``prompts`` by ``steps`` tokens, or does not fit the context or the configuration.
        """
        if is_compiled_text(checkpoint):
            return self._loaded(Path(checkpoint), config, memory_bytes, fixed=fixed, texts=texts)
        options = self.quantization
        found = load_text(checkpoint, self.tokenizer)
        self._check(found, config if fixed else equipped(config, options), prompts, steps)
        options = searched_text(found, options, self.formats.loss)
        if not fixed:
            config = equipped(config, options, texts * (1 + found.description.heads))
        lines = None if self.calibration is None else found.read_calibration(self.calibration)

        def programs(decoder: Decoder) -> TextProgram:
            machine = config if fixed else paired(config, decoder)
            capacity = self.context or min(decoder.places, machine.max_row)
            return compile_text(
                decoder,
                machine,
                context=capacity,
                sinks=min(self.sinks, capacity - 1),
                memory_bytes=memory_bytes,
                sparse=self.formats.sparse,
                recompute=self.kv == RECOMPUTE,
                texts=texts,
            )

        if not self.formats.sparse:
            check_memory(found.description, found.weights, config, options, memory_bytes)
        check_layers(
            found.description,
            found.weights,
            lambda some: programs(found.first_layers(some, options)),
        )
        with progress("Calibration") as update:
            decoder, apart = found.calibrate(lines, options, update)
        warn(apart.warning)
        program = programs(decoder)
        return Compiled(
            program=program,
            tokenizer=found.tokenizer,
            figures=self._figures(program, apart),
            source=found,
        )

    def _check(
        self, source: TextSource, config: Config, prompts: Sequence[str], steps: int
    ) -> None:
        """Refuse before calibration what needs none to be refused."""
        model = source.description
        check_described(model, config, wide_functions=self.quantization.wide_functions)
        capacity = self.context or min(model.positions, config.max_row)
        if capacity > model.positions:
            raise InputError(
                f"Context must be at most the {model.positions} tokens that model {model.name} was "
                f"made for, not {capacity}"
            )
        for prompt in prompts:
            check_length(model, source.tokenizer.encode(prompt), steps, model.positions)

    def _figures(self, program: TextProgram, apart: Parting) -> dict[str, Any]:
        size = program.decoder.weight_bytes
        return {**self.formats.figures, "weight_bytes": size, "calibration": apart.figures()}

    def _loaded(
        self,
        folder: Path,
        config: Config,
        memory_bytes: int | None,
        *,
        fixed: bool,
        texts: int,
    ) -> Compiled:
        own = {name for name in DecoderOptions.__dataclass_fields__ if name != "formats"}
        formats = set(Formats.__dataclass_fields__) - {"bits"}
        given = given_options([*own, *formats, *(() if fixed else ("source", "overrides"))])
        if given:
            raise InputError(
                f"Option {given[0]} is not for {folder}, which is compiled; give it to "
                "celosia compile"
            )
        program, tokenizer, figures = load_compiled_text(folder)
        if program.texts != texts:
            own = "1 text" if program.texts == 1 else f"{program.texts} texts at once"
            raise InputError(f"Folder {folder} is compiled for {own}, not {texts}")
        if fixed and fingerprint(config) != fingerprint(program.config):
            raise InputError(
                f"Folder {folder} is compiled for another configuration, {program.config.name}, "
                f"than {config.name}"
            )
        check_bits(self.formats.bits, figures["weights"])
        if memory_bytes is not None and program.memory_bytes > memory_bytes:
            raise InputError(
                f"Model {program.name} needs {program.memory_bytes} bytes of external memory, but "
                f"it has {memory_bytes}"
            )
        if not fixed:
            program = replace(program, config=program.config.replace(trace=True))
        return Compiled(program=program, tokenizer=tokenizer, figures=figures)


@dataclass(frozen=True, kw_only=True)
class TextOptions(DecoderOptions):
    """Options of continuing a text."""

    steps: int
    temperature: float
    top_p: float
    seed: int

    def __post_init__(self) -> None:
        """Check what does not depend on the model."""
        super().__post_init__()
        if self.steps < 1:
            raise InputError(f"Steps must be at least 1, not {self.steps}")
        Sampling(self.temperature, self.top_p)

    def run(
        self,
        checkpoint: str,
        prompt: str,
        config: Config,
        machine: str | Machine,
        *,
        quiet: bool,
        memory_bytes: int | None = None,
        timing: MemoryTiming = PROMPT,
    ) -> dict[str, Any]:
        """Go on with a prompt, shown as it grows unless ``quiet``; return what it took.

        Arguments are those of :func:`celosia.tb.models.run_text.run_text` and ``compile_text``.
        """
        sampling = Sampling(self.temperature, self.top_p)
        fixed = not isinstance(machine, str)
        found = self.compiled(
            checkpoint, config, memory_bytes, fixed=fixed, prompts=[prompt], steps=self.steps
        )
        result = run_text(
            found.program,
            found.tokenizer,
            prompt,
            self.steps,
            machine,
            sampling=sampling,
            seed=self.seed,
            show=None if quiet else lambda piece: say(piece, nl=False),
            timing=timing,
            bits=self.formats.bits,
        )
        if not quiet:
            say()
        return {**result, **found.figures, "bits": list(self.formats.bits)}

    def run_both(
        self,
        checkpoint: str,
        prompts: Sequence[str],
        config: Config,
        machine: str | Machine,
        *,
        memory_bytes: int | None = None,
        timing: MemoryTiming = PROMPT,
    ) -> dict[str, Any]:
        """Go on with two prompts in the same runs; return the texts and what they took.

        Arguments are those of :func:`celosia.tb.models.run_texts.run_texts` and ``compile_text``.
        """
        sampling = Sampling(self.temperature, self.top_p)
        fixed = not isinstance(machine, str)
        found = self.compiled(
            checkpoint,
            config,
            memory_bytes,
            fixed=fixed,
            texts=len(prompts),
            prompts=prompts,
            steps=self.steps,
        )
        result = run_texts(
            found.program,
            found.tokenizer,
            prompts,
            self.steps,
            machine,
            sampling=sampling,
            seed=self.seed,
            timing=timing,
            bits=self.formats.bits,
        )
        return {**result, **found.figures, "bits": list(self.formats.bits)}

    def answer(
        self,
        checkpoint: str,
        answers: Sequence[tuple[str, str]],
        config: Config,
        machine: str,
        timing: MemoryTiming,
    ) -> dict[str, Any]:
        """Answer sources that have a right answer; return the share of these, and what it took.

        Arguments are those of :func:`celosia.tb.models.run_answers.run_answers`.
        """
        if self.temperature:
            raise InputError(
                f"Temperature must be 0 with --answers, which takes the likeliest token, "
                f"not {self.temperature}"
            )
        self.formats.refuse_bits("--answers")
        sources = [source for source, _ in answers]
        found = self.compiled(checkpoint, config, None, fixed=False, prompts=sources)
        with progress("Answers") as update:
            result = run_answers(
                found.program,
                found.tokenizer,
                answers,
                machine,
                source=found.source,
                timing=timing,
                progress=update,
            )
        return {**result, **found.figures, "bits": list(self.formats.bits)}


def searched_text(source: TextSource, options: Quantization, loss: float | None) -> Quantization:
    """Return options with the formats of weights that lose so much at most, and say which."""
    if loss is None:
        return options
    if options.balance is None:
        options = replace(options, balance=DECODER_BALANCE)
    with progress("Formats of weights") as update:
        found = mix_text(source, options, loss, update)
    say(f"celosia: {found.summary}", err=True)
    return replace(options, chosen=found.chosen)


def report_text(title: str, result: Mapping[str, Any], as_json: bool) -> None:
    """Show what a text took, or print all of it as JSON; of two texts, each of them as well."""
    for one in () if as_json else result.get("texts", ()):
        say(one["text"])
    hidden = ("text", "texts", "tokens", "cycles", "counters", "calibration")
    shown = {name: value for name, value in result.items() if name not in hidden}
    report(title, [shown], as_json, result)
    cycles_table(result, as_json)
