"""Compiled models: run, compared, saved and exported, encoders and language models alike."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError, check_known
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.support.writing import write_files
from celosia.exporting import files
from celosia.generators.export.folder import outdated
from celosia.generators.frontend.text_sources import TokenizerLike
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import Parting
from celosia.generators.reference.sampling import Sampling
from celosia.generators.runtime.encoder_host import EncoderHost
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.text_host import TextHost
from celosia.generators.runtime.text_lengths import check_length
from celosia.generators.studies.remedies import remedies
from celosia.models import Inputs, Model, token_rows
from celosia.tables import Shown, facts
from celosia.tb.machine.memory_timing import FAR, MemoryTiming
from celosia.tb.machine.simulators import make_machine
from celosia.tb.machine.toolchain import MACHINES
from celosia.tb.models.export_inputs import COUNT
from celosia.tb.models.inference import infer
from celosia.tb.models.run_text import TextRun
from celosia.tb.models.text_session import TextSession


@dataclass(frozen=True, eq=False, repr=False)
class Run(Shown):
    """Results of a program's run on a machine."""

    outputs: list[NDArray[np.float64]]
    """The whole model's output of each input, in the model's own unit; of a language model the
    logits behind the last token, [vocabulary]."""
    cycles: int | None
    """Cycles of all inputs, counted; None on a machine without a clock."""
    mismatches: int
    """Tensors that differ from the golden machine's."""
    tensors: int
    """Tensors that were compared."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Sums of the machine's counters, by the names of ``celosia.arch.registers``."""

    def lines(self) -> list[dict[str, Any]]:
        """Return the run's figures."""
        own = {"inputs": len(self.outputs), "cycles": self.cycles}
        return facts(**own, mismatches=self.mismatches, tensors=self.tensors)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Errors of a program's integers by layer, and the options that lower them."""

    layers: Sequence[Mapping[str, Any]]

    def lines(self) -> Sequence[Mapping[str, Any]]:
        """Return the layers."""
        return self.layers


@dataclass(frozen=True, eq=False, repr=False)
class Program(Shown):
    """A model compiled for a configuration, as :func:`celosia.compile` returns it."""

    code: EncoderHost | TextHost
    """The programs with their entries, and all that a host must know to run them."""
    made: Mapping[str, Any]
    """Figures of how the model was made integers, by name."""
    model: Model | None = None
    """The float model; None of a program that was opened without it."""
    own_tokenizer: TokenizerLike | None = None
    """The tokenizer of a program without its model."""
    options: Quantization | None = None
    inputs: Sequence[Any] | None = None
    """Prepared inputs, or texts of token numbers, that it was calibrated on."""
    parting: Parting | None = None
    """Distance of integers from floats on some of them."""
    summary: str = ""
    """Sentence on a search for formats of weights; empty without one."""
    names: Sequence[str] = ()
    """Names of the columns of an encoder's output, as far as they are known."""
    bits: int = OPERAND_BITS
    """Bits at which nested weights are read."""

    @property
    def config(self) -> Config:
        """The machine's configuration."""
        return self.code.config

    @property
    def name(self) -> str:
        """The model's name."""
        return self.code.name

    @property
    def tokenizer(self) -> TokenizerLike | None:
        """Conversion of a language model's texts into tokens and back."""
        return self.own_tokenizer if self.model is None else self.model.source.tokenizer

    @property
    def words(self) -> int:
        """Words of the program memory (32 bits each)."""
        return len(self.code.words)

    @property
    def bytes(self) -> int:
        """External memory that the program takes (bytes)."""
        return self.code.memory_bytes

    @property
    def cycles(self) -> int | None:
        """Predicted cycles of an inference, or of a token at a text's last place.

        The memory is :data:`celosia.tb.machine.memory_timing.FAR`. None of a microcoded machine.
        """
        return self.predicted(FAR)

    def predicted(self, timing: MemoryTiming) -> int | None:
        """Return the predicted cycles with a memory of some timing, without its refreshes."""
        if self.config.micro is not None:
            return None
        return self.code.predict_whole(timing.latency, timing.interval, bits=self.bits)

    def lines(self) -> list[dict[str, Any]]:
        """Return the program's figures."""
        warning = None if self.parting is None else self.parting.warning or None
        return facts(
            model=self.name,
            configuration=self.config.name,
            entries=", ".join(self.code.entries),
            words=self.words,
            bytes=self.bytes,
            predicted_cycles=self.cycles,
            warning=warning,
        )

    def run(self, inputs: Inputs, on: str = "golden", *, timing: MemoryTiming = FAR) -> Run:
        """Run the program on inputs, each tensor compared with the golden machine's.

        ``inputs`` are as :meth:`celosia.Model.floats` takes them, or, if the program was opened
        without its model, rows of the machine's input [tokens, features] each. ``on`` is
        ``golden``, ``verilator``, ``icarus`` or the port of a board, as ``/dev/ttyUSB0``. Tensors
        of the golden machine are compared with the integer reference. ``timing`` is that of a
        simulated memory.

        Raises :class:`InputError` if an input does not fit, or there is no such machine, and
        :class:`RunError` if a run fails.
        """
        code, model = self._traced(on), self.model
        if isinstance(code, TextHost):
            return self._run_texts(code, inputs, on, timing)
        if model is None:
            rows = [np.asarray(matrix, np.float64) for matrix in inputs]
        else:
            rows = [model.source.rows(values) for values in model.prepared(inputs)]
        machine = self._machine(on, timing)
        results = infer(machine, code, rows, timing, bits=(self.bits,))
        outputs = [
            output[: code.output_rows(len(matrix))]
            for output, matrix in zip(results.outputs, rows, strict=True)
        ]
        if model is not None:
            outputs = [np.asarray(model.source.finish(output), np.float64) for output in outputs]
        spent = results.cycles or None, results.mismatches, results.tensors
        return Run(outputs, *spent, dict(results.spent))

    def _machine(self, on: str, timing: MemoryTiming) -> Machine:
        if on in MACHINES:
            return make_machine(self._traced(on).config, on, self.bytes, timing)
        if not any(mark in on for mark in ("/", ":", "COM")):
            check_known("machine", on, (*MACHINES, "a board's port"))
        # Boards need extras that simulations do not.
        machine: Machine = importlib.import_module("celosia.boards").connect(on, self.config)
        return machine

    def _traced(self, on: str) -> EncoderHost | TextHost:
        """Return the programs for a machine; of a simulated one every tensor can be compared."""
        if on not in MACHINES or self.config.micro is not None:
            return self.code
        return replace(self.code, config=self.config.replace(trace=True))

    def _run_texts(self, code: TextHost, inputs: Inputs, on: str, timing: MemoryTiming) -> Run:
        texts = token_rows(self.name, self.tokenizer, inputs)
        self._check_single()
        for tokens in texts:
            check_length(code, tokens, 1, code.places)
        session = TextSession(code, self._machine(on, timing), timing)
        session.bits = self.bits
        total, outputs = session.setup, []
        for tokens in texts:
            session.begin()
            if code.lookups:
                total.add(session.encode(tokens))
            session.take([code.start] if code.lookups else tokens)
            outputs.append(session.logits() * code.logits_step)
            total.add(session.turns[-1])
        return Run(outputs, total.cycles or None, total.mismatches, total.tensors, total.counters)

    def _check_single(self) -> None:
        if self.code.texts > 1:
            raise InputError(
                f"Program {self.name} takes {self.code.texts} texts at once; compile it with "
                "batch=1, or continue the texts with celosia run"
            )

    def generate(
        self,
        text: str,
        steps: int = 32,
        on: str = "golden",
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 1,
        timing: MemoryTiming = FAR,
    ) -> Iterator[str]:
        """Yield the continuation of a text, a piece for each token, at most ``steps``.

        A piece is empty while a character lacks bytes. Of an encoder-decoder the pieces are the
        answer to the text. The likeliest token is taken at ``temperature`` 0; otherwise tokens are
        drawn from the share ``top_p`` of probability. ``on`` is as for :meth:`run`.

        Raises :class:`InputError` if the text cannot be continued, and :class:`RunError` at the end
        if a tensor differed from the golden machine's.
        """
        code, tokenizer = self._traced(on), self.tokenizer
        if not isinstance(code, TextHost) or tokenizer is None:
            raise InputError(f"Program {self.name} is an encoder, which generates no text; use run")
        self._check_single()
        sampling, machine = Sampling(temperature, top_p), self._machine(on, timing)
        run = TextRun(code, tokenizer, text, steps, machine, sampling, seed, timing, (self.bits,))
        pieces = run.pieces()
        next(pieces)  # the prompt
        yield from pieces
        wrong = run.figures()["mismatches"]
        if wrong:
            raise RunError(f"{wrong} tensors on {on} differ from those of the golden machine")

    def compare(self, inputs: Inputs) -> Comparison:
        """Return the error of each layer against the float model, and the option that lowers it.

        An error is that of the layer's output, relative to its float values, on ``inputs``. Each
        option is tried by making the model integers with it; None lowers some errors.
        """
        model = self.with_model
        assert self.options is not None, "a compiled program has its options"
        inputs = model.prepared(inputs)
        layers = remedies(model.source, self.config, self.options, self.inputs, inputs)
        return Comparison(layers)

    @property
    def with_model(self) -> Model:
        """The float model; raises :class:`InputError` if the program was opened without it."""
        if self.model is None or self.options is None:
            raise InputError(
                f"Program {self.name} was opened from a folder, without its float model; load and "
                "compile the model"
            )
        return self.model

    def save(self, folder: str | Path) -> Path:
        """Write the program to a folder, which :func:`celosia.open` reads; return the folder."""
        return self.export(folder, verilog=False)

    def export(
        self,
        folder: str | Path,
        *,
        verilog: bool = True,
        c: bool = False,
        testbench: bool = False,
        inputs: Inputs | None = None,
        steps: int = 4,
    ) -> Path:
        """Write the program for use elsewhere, all files or none; return the folder.

        Besides the saved program the folder gets the accelerator's ``verilog``, a driver and the
        model in ``c``, and a ``testbench``. These run the model on ``inputs``, by default its
        examples. A language model continues them, as prompts, by ``steps`` tokens.

        Raises :class:`InputError` if an input does not fit, or the folder cannot be written.
        """
        rows: Sequence[Any] = ()
        if (c or testbench) and isinstance(self.code, TextHost):
            rows = [""] if inputs is None else [inputs] if isinstance(inputs, str) else [*inputs]
        elif c or testbench:
            model = self.with_model
            some = model.prepared(model.examples(COUNT) if inputs is None else inputs)
            rows = [np.asarray(model.source.rows(values), np.float32) for values in some]
        chosen = {"steps": steps, "verilog": verilog, "c": c, "testbench": testbench}
        source, named = self.with_model.source, {"bits": self.bits, "names": self.names}
        written = files(self.code, source, self.made, rows, **chosen, **named)
        write_files(Path(folder), written, outdated(Path(folder), written))
        return Path(folder)
