"""Options of the commands that continue a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import click

from arch.config import Config
from arch.errors import InputError
from arch.formats import OPERAND_BITS
from cli.options import (
    ACTIVATIONS_OPTION,
    BITS_OPTION,
    FUNCTIONS_OPTION,
    KV_OPTIONS,
    LOSS_OPTION,
    RANK_OPTION,
    WEIGHT_OPTIONS,
    WIDE,
    Command,
    added,
    asked_format,
    equipped,
    paired,
)
from cli.output import cycles_table, progress, report, warn
from cli.paths import FILE
from generators.mixtures import mix_text
from generators.nested import check_bits
from generators.quantize.options import DECODER_BALANCE, Quantization
from generators.quantize.parting import Parting
from generators.reference.sampling import Sampling
from generators.text_program import TextProgram, compile_text
from generators.text_sources import TextSource, TokenizerLike, load_text
from tb.machines import PROMPT
from tb.memory_timing import MemoryTiming
from tb.run_answers import run_answers
from tb.run_text import run_text
from tb.text_session import TextMachine

KEEP, RECOMPUTE = "keep", "recompute"
"""Choices of what is there of earlier tokens: keys and values, or what these are made of."""
_OPTIONS = (
    click.option(
        "--tokenizer",
        type=FILE,
        help="The tokenizer's file; the checkpoint's own if there is one.",
    ),
    click.option(
        "--steps", "--tokens", default=64, show_default=True, help="Tokens to add, at most."
    ),
    click.option(
        "--temperature", default=0.0, show_default=True, help="0 takes the likeliest token."
    ),
    click.option(
        "--top-p", default=1.0, show_default=True, help="Share of probability drawn from."
    ),
    click.option("--context", default=0, help="Tokens that the cache has room for; 0 for all."),
    click.option("--sinks", default=4, show_default=True, help="First tokens that never leave it."),
    *KV_OPTIONS,
    click.option(
        "--kv",
        type=click.Choice([KEEP, RECOMPUTE]),
        default=KEEP,
        show_default=True,
        help="Keep keys and values, or the narrower inputs that each token makes them of anew.",
    ),
    *WEIGHT_OPTIONS,
    RANK_OPTION,
    BITS_OPTION,
    LOSS_OPTION,
    FUNCTIONS_OPTION,
    ACTIVATIONS_OPTION,
    click.option("--sparse", is_flag=True, help="Skip zero weights where that is faster."),
    click.option(
        "--folded", is_flag=True, help="RMS norms' gains in the weights: fewer parameter words."
    ),
)


def text_options(command: Command) -> Command:
    """Add what says how a text goes on; :class:`TextOptions` takes the values."""
    return added(_OPTIONS, command)


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options of continuing a text."""

    tokenizer: Path | None
    steps: int
    temperature: float
    top_p: float
    context: int
    sinks: int
    kv_bits: int
    kv_whole: int | None
    kv: str
    kv_blocks: int
    weights: str
    group: int
    low_rank: int
    bits: tuple[int, ...]
    loss: float | None
    functions: str
    activations: str
    sparse: bool
    folded: bool
    seed: int
    calibration: Path | None

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
            weights=asked_format(self.weights, self.loss),
            group=self.group,
            low_rank=self.low_rank,
            wide_functions=self.functions == WIDE,
            activations=self.activations,
        )

    def run(
        self,
        checkpoint: str,
        prompt: str,
        config: Config,
        machine: str | TextMachine,
        *,
        quiet: bool,
        memory_bytes: int | None = None,
        timing: MemoryTiming = PROMPT,
    ) -> dict[str, Any]:
        """Go on with a prompt, shown as it grows unless ``quiet``; return what it took.

        Arguments are those of :func:`tb.run_text.run_text` and ``compile_text``.
        """
        sampling = Sampling(self.temperature, self.top_p)
        program, tokenizer, apart = self.compiled(
            checkpoint, config, memory_bytes, simulated=isinstance(machine, str)
        )
        result = run_text(
            program,
            tokenizer,
            prompt,
            self.steps,
            machine,
            sampling=sampling,
            seed=self.seed,
            show=None if quiet else lambda piece: click.echo(piece, nl=False),
            timing=timing,
            bits=self.bits,
        )
        if not quiet:
            click.echo()
        return {**result, **self._stored(program, apart)}

    def answer(
        self,
        checkpoint: str,
        answers: Sequence[tuple[str, str]],
        config: Config,
        machine: str,
        timing: MemoryTiming,
    ) -> dict[str, Any]:
        """Answer sources that have a right answer; return the share of these, and what it took.

        Arguments are those of :func:`tb.run_answers.run_answers`.
        """
        if self.temperature:
            raise InputError(
                f"Temperature must be 0 with --answers, which takes the likeliest token, "
                f"not {self.temperature}"
            )
        self.refuse_bits("--answers")
        program, tokenizer, apart = self.compiled(checkpoint, config, None, simulated=True)
        with progress("Answers") as update:
            result = run_answers(
                program, tokenizer, answers, machine, timing=timing, progress=update
            )
        return {**result, **self._stored(program, apart)}

    def refuse_bits(self, what: str) -> None:
        """Raise :class:`InputError` where fewer bits are asked for by what computes with all."""
        if self.bits != (OPERAND_BITS,):
            asked = ",".join(map(str, self.bits))
            raise InputError(f"Option --bits {asked} is not for {what}, which computes with all")

    def _stored(self, program: TextProgram, apart: Parting) -> dict[str, Any]:
        size = program.decoder.weight_bytes
        return {
            "weights": self.weights,
            "activations": self.activations,
            "low_rank": self.low_rank,
            "bits": list(self.bits),
            "weight_bytes": size,
            "calibration": apart.figures(),
        }

    def compiled(
        self, checkpoint: str, config: Config, memory_bytes: int | None, *, simulated: bool
    ) -> tuple[TextProgram, TokenizerLike, Parting]:
        """Return a checkpoint's programs and tokenizer, and how far it is from floats."""
        options = self.quantization
        check_bits(self.bits, self.weights)
        found = load_text(checkpoint, self.tokenizer)
        options = searched_text(found, options, self.loss)
        if simulated:
            config = equipped(config, options)
        texts = None if self.calibration is None else found.read_calibration(self.calibration)
        with progress("Calibration") as update:
            decoder, apart = found.calibrate(texts, options, update)
        warn(apart.warning)
        if simulated:
            config = paired(config, decoder)
        capacity = self.context or min(decoder.places, config.max_row)
        program = compile_text(
            decoder,
            config,
            context=capacity,
            sinks=min(self.sinks, capacity - 1),
            memory_bytes=memory_bytes,
            sparse=self.sparse,
            recompute=self.kv == RECOMPUTE,
        )
        return program, found.tokenizer, apart


def searched_text(source: TextSource, options: Quantization, loss: float | None) -> Quantization:
    """Return options with the formats of weights that lose so much at most, and say which."""
    if loss is None:
        return options
    if options.balance is None:
        options = replace(options, balance=DECODER_BALANCE)
    with progress("Formats of weights") as update:
        found = mix_text(source, options, loss, update)
    click.echo(f"celosia: {found.summary}", err=True)
    return replace(options, chosen=found.chosen)


def report_text(title: str, result: Mapping[str, Any], as_json: bool) -> None:
    """Show what a text took, or print all of it as JSON."""
    hidden = ("text", "tokens", "cycles", "counters", "calibration")
    shown = {name: value for name, value in result.items() if name not in hidden}
    report(title, [shown], as_json, result)
    cycles_table(result, as_json)
