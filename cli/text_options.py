"""Options of the commands that continue a text."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.link import fingerprint
from celosia.cli.format_options import Formats
from celosia.cli.options import Command, added, given_options
from celosia.cli.output import cycles_table, progress, report, say, warn
from celosia.cli.paths import FILE
from celosia.compiling import compile_decoder
from celosia.generators.export.compiled_folder import is_compiled_text
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.graph.fewer_planes import check_bits
from celosia.generators.lower.text_compiler import TextOptions
from celosia.generators.reference.sampling import Sampling
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.text_host import TextHost
from celosia.models import Model
from celosia.opening import open as open_program
from celosia.programs import Program
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.run_answers import run_answers
from celosia.tb.models.run_text import run_text
from celosia.tb.models.run_texts import run_texts

KEEP, RECOMPUTE = "keep", "recompute"
"""Choices of the data kept of earlier tokens: keys and values, or the inputs to compute them
from."""
_DECODER_OPTIONS = (
    click.option(
        "--tokenizer",
        type=FILE,
        help="The tokenizer's file; the checkpoint's own if there is one.",
    ),
)
_OPTIONS = (
    click.option("--steps", default=64, show_default=True, help="Tokens to add, at most."),
    click.option(
        "--temperature", default=0.0, show_default=True, help="0 takes the likeliest token."
    ),
    click.option(
        "--top-p", default=1.0, show_default=True, help="Share of probability drawn from."
    ),
)


def decoder_options(command: Command) -> Command:
    """Add options of compiling a decoder; :class:`DecoderOptions` takes the values."""
    return added(_DECODER_OPTIONS, command)


def text_options(command: Command) -> Command:
    """Add options of continuing a text; :class:`ContinuationOptions` takes the values."""
    return decoder_options(added(_OPTIONS, command))


def likeliest_options(command: Command) -> Command:
    """Add the same options without sampling: a board without a host takes the likeliest token."""

    @functools.wraps(command)
    def with_sampling(**named: Any) -> Any:
        return command(temperature=0.0, top_p=1.0, **named)

    return decoder_options(added(_OPTIONS[:1], with_sampling))


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
        """Check the fields that do not depend on the model."""
        TextOptions(context=self.context, sinks=self.sinks)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the options among a command's values."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})

    def options(self, texts: int) -> TextOptions:
        """Return the compiler's options for texts that are continued in the same runs."""
        return TextOptions(
            kv_bits=self.kv_bits,
            whole=self.kv_whole,
            block=self.kv_blocks,
            folded=self.folded,
            deferred=self.deferred,
            sparse=self.formats.sparse,
            batch=texts,
            context=self.context,
            sinks=self.sinks,
            recompute=self.kv == RECOMPUTE,
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
    ) -> Program:
        """Return a checkpoint's programs, or those of a folder that ``celosia compile`` wrote.

        A configuration that is not ``fixed`` gets the fields that the options need. For a folder it
        is the folder's; a fixed one must equal that. ``texts`` is the number of texts that are
        continued in the same runs.

        Raises :class:`InputError` if options are given that a compiled folder has decided, or if it
        is for another number of texts. It is also raised, before any work, if the model cannot
        continue one of the ``prompts`` by ``steps`` tokens, or does not fit the context or the
        configuration.
        """
        if is_compiled_text(checkpoint):
            return self._loaded(Path(checkpoint), config, memory_bytes, fixed=fixed, texts=texts)
        model = Model(checkpoint, load_text(checkpoint, self.tokenizer))
        lines = None
        if self.calibration is not None:
            lines = model.source.read_calibration(self.calibration)
        program = compile_decoder(
            model,
            config,
            lines,
            self.options(texts),
            loss=self.formats.loss,
            memory_bytes=memory_bytes,
            fixed=fixed,
            prompts=prompts,
            steps=steps,
            show=progress,
        )
        tell(program)
        return program

    def _loaded(
        self,
        folder: Path,
        config: Config,
        memory_bytes: int | None,
        *,
        fixed: bool,
        texts: int,
    ) -> Program:
        own = {name for name in DecoderOptions.__dataclass_fields__ if name != "formats"}
        formats = set(Formats.__dataclass_fields__) - {"bits"}
        stated_options = given_options(
            [*own, *formats, *(() if fixed else ("source", "overrides"))]
        )
        if stated_options:
            raise InputError(
                f"Option {stated_options[0]} is not for {folder}, which is compiled; give it to "
                "celosia compile"
            )
        program = open_program(folder)
        code = program.code
        assert isinstance(code, TextHost)
        if code.texts != texts:
            own = "1 text" if code.texts == 1 else f"{code.texts} texts at once"
            raise InputError(f"Folder {folder} is compiled for {own}, not {texts}")
        if fixed and fingerprint(config) != fingerprint(code.config):
            raise InputError(
                f"Folder {folder} is compiled for another configuration, {code.config.name}, "
                f"than {config.name}"
            )
        check_bits(self.formats.bits, program.made["weights"])
        if memory_bytes is not None and code.memory_bytes > memory_bytes:
            raise InputError(
                f"Model {code.name} needs {code.memory_bytes} bytes of external memory, but "
                f"it has {memory_bytes}"
            )
        if not fixed:
            program = replace(program, code=replace(code, config=code.config.replace(trace=True)))
        return program


@dataclass(frozen=True, kw_only=True)
class ContinuationOptions(DecoderOptions):
    """Options of continuing a text."""

    steps: int
    temperature: float
    top_p: float
    seed: int

    def __post_init__(self) -> None:
        """Check the fields that do not depend on the model."""
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
        """Continue a prompt, shown as it grows unless ``quiet``; return its figures.

        Arguments are those of :func:`celosia.tb.models.run_text.run_text` and ``compile_text``.
        """
        sampling = Sampling(self.temperature, self.top_p)
        fixed = not isinstance(machine, str)
        decoder = self.compiled(
            checkpoint, config, memory_bytes, fixed=fixed, prompts=[prompt], steps=self.steps
        )
        result = run_text(
            decoder.code,
            decoder.tokenizer,
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
        return {**result, **decoder.made, "bits": list(self.formats.bits)}

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
        """Continue two prompts in the same runs; return the texts and their figures.

        Arguments are those of :func:`celosia.tb.models.run_texts.run_texts` and ``compile_text``.
        """
        sampling = Sampling(self.temperature, self.top_p)
        fixed = not isinstance(machine, str)
        decoder = self.compiled(
            checkpoint,
            config,
            memory_bytes,
            fixed=fixed,
            texts=len(prompts),
            prompts=prompts,
            steps=self.steps,
        )
        result = run_texts(
            decoder.code,
            decoder.tokenizer,
            prompts,
            self.steps,
            machine,
            sampling=sampling,
            seed=self.seed,
            timing=timing,
            bits=self.formats.bits,
        )
        return {**result, **decoder.made, "bits": list(self.formats.bits)}

    def answer(
        self,
        checkpoint: str,
        answers: Sequence[tuple[str, str]],
        config: Config,
        machine: str,
        timing: MemoryTiming,
    ) -> dict[str, Any]:
        """Answer sources that have a right answer; return the share of right ones, and figures.

        Arguments are those of :func:`celosia.tb.models.run_answers.run_answers`.
        """
        if self.temperature:
            raise InputError(
                f"Temperature must be 0 with --answers, which takes the likeliest token, "
                f"not {self.temperature}"
            )
        self.formats.refuse_bits("--answers")
        sources = [source for source, _ in answers]
        decoder = self.compiled(checkpoint, config, None, fixed=False, prompts=sources)
        with progress("Answers") as update:
            result = run_answers(
                decoder.code,
                decoder.tokenizer,
                answers,
                machine,
                source=None if decoder.model is None else decoder.model.source,
                timing=timing,
                progress=update,
            )
        return {**result, **decoder.made, "bits": list(self.formats.bits)}


def tell(program: Program) -> None:
    """Print the search for formats, and the distance of integers from floats, on standard error."""
    if program.summary:
        say(f"celosia: {program.summary}", err=True)
    warn(None if program.parting is None else program.parting.warning)


def report_text(title: str, result: Mapping[str, Any], as_json: bool) -> None:
    """Show the figures of a text, or print all of them as JSON; of two texts, each text as well."""
    for entry in () if as_json else result.get("texts", ()):
        say(entry["text"])
    hidden = ("text", "texts", "tokens", "cycles", "counters", "calibration")
    shown = {name: value for name, value in result.items() if name not in hidden}
    report(title, [shown], as_json, result)
    cycles_table(result, as_json)
