"""Compiled encoders and language models, which can be run, compared, saved and exported."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.arguments import check_type, checked
from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.support.writing import write_files
from celosia.checking import MOST_CYCLES, TOKENS, check_program
from celosia.exporting import files
from celosia.generators.export.folder import outdated
from celosia.generators.frontend.named_inputs import as_array
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.graph.fewer_planes import check_bits
from celosia.generators.lower.artefact import Artefact
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import Parting
from celosia.generators.reference.sampling import Sampling
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.generators.runtime.text_lengths import check_length
from celosia.generators.studies.remedies import remedies
from celosia.models import Inputs, Model, as_sequence, token_rows
from celosia.results import Comparison, Run
from celosia.tables import Shown, figure_table
from celosia.targets import target, with_trace_port
from celosia.tb.machine.memory_timing import FAR, MemoryTiming
from celosia.tb.models.export_inputs import COUNT
from celosia.tb.models.inference import Inferences, Progress, infer
from celosia.tb.models.run_answers import run_answers
from celosia.tb.models.run_text import TextRun, run_text
from celosia.tb.models.run_texts import run_texts
from celosia.tb.models.text_session import run_tokens


@dataclass(frozen=True, eq=False, repr=False)
class Program(Shown):
    """A model compiled for a configuration, as :func:`celosia.compile` returns it."""

    code: Host
    """The machine programs with their entry points, and all data that a host needs to run them."""
    made: Mapping[str, Any]
    """Figures about the model's quantization, by name."""
    model: Model | None = None
    """The float model; None if the program was opened without it."""
    own_tokenizer: TokenizerLike | None = None
    """The tokenizer of a program that was opened without its model."""
    options: Quantization | None = None
    inputs: Sequence[Any] | None = None
    """Prepared inputs, or texts of token numbers, used for calibration."""
    parting: Parting | None = None
    """Distance between integer and float model on some of these inputs."""
    summary: str = ""
    """Sentence about the search for weight formats; empty without a search."""
    names: Sequence[str] = ()
    """Names of the columns of an encoder's output; empty if they are unknown."""
    bits: int = OPERAND_BITS
    """Precision at which nested weights are read (bits)."""

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
        """The tokenizer, which converts texts into tokens and back; None if the model has none."""
        return self.own_tokenizer if self.model is None else self.model.source.tokenizer

    @property
    def words(self) -> int:
        """Size of the program in program memory (32-bit words)."""
        return len(self.code.words)

    @property
    def bytes(self) -> int:
        """Size of the external memory that the program and its data need (bytes)."""
        return self.code.memory_bytes

    @property
    def cycles(self) -> int | None:
        """Predicted cycles of one run; None for a microcoded machine.

        A run is an encoder's inference, or a language model's token at the last position of its
        cache. The external memory has the timing :data:`celosia.tb.machine.memory_timing.FAR` (a
        latency of 40 cycles).
        """
        return self.predicted(FAR)

    @checked()
    def predicted(self, timing: MemoryTiming) -> int | None:
        """Return the predicted cycles of a run with an external memory of the timing ``timing``.

        A run is an encoder's inference, or the processing of a language model's token at the last
        position of its cache. The prediction ignores refreshes of the memory. The result is None
        for a microcoded machine.
        """
        if self.config.micro is not None:
            return None
        return self.code.predict_longest(timing.latency, timing.interval, bits=self.bits)

    def lines(self) -> list[dict[str, Any]]:
        """Return the table that ``print`` shows, a list of lines.

        Each line is a dictionary with the keys ``figure`` (a name) and ``value``. The figures are
        the model, the configuration, the entry points, the sizes and the predicted cycles. The last
        line warns if the integer model's outputs differ much from the float model's.
        """
        warning = None if self.parting is None else self.parting.warning or None
        return figure_table(
            model=self.name,
            configuration=self.config.name,
            entries=", ".join(self.code.entries),
            words=self.words,
            bytes=self.bytes,
            predicted_cycles=self.cycles,
            warning=warning,
        )

    @checked()
    def run(self, inputs: Inputs, on: str = "golden", *, timing: MemoryTiming = FAR) -> Run:
        """Run the program on inputs; return its outputs, cycles and the number of wrong tensors.

        ``inputs`` have the form that :meth:`celosia.Model.floats` accepts. If an encoder was opened
        without its float model, each input is instead a matrix [tokens, features], which the
        machine reads without preprocessing. ``timing`` is the timing of external memory in a
        simulation.

        ``on`` names the machine. A tensor is wrong if it differs from its reference:

        - ``golden``: the golden machine, an exact model in software. The reference is the quantized
          model, which NumPy computes without the program. A program opened from a folder has no
          reference, and no tensor is compared.
        - ``verilator`` or ``icarus``: the circuit in this simulator. All tensors that the circuit
          writes are compared with those of the golden machine.
        - the port of a board, such as ``/dev/ttyUSB0``. The outputs that the board returns are
          compared with those of the golden machine. Tensors inside the model are not compared.

        Raises :class:`InputError` if an input does not fit or the machine is unknown, and
        :class:`RunError` if a run fails.
        """
        code, model = self.code, self.model
        if code.reads_tokens:
            code, tokenizer = self._text(on)
            texts = token_rows(self.name, tokenizer, inputs)
            self.check_texts(1)
            for tokens in texts:
                check_length(code, tokens, 1, code.places)
            logits, total = run_tokens(code, target(code, on, timing), texts, timing, self.bits)
            spent = total.cycles or None, total.mismatches, total.tensors
            return Run(logits, *spent, total.counters)
        prepared: Sequence[Any] = []
        if model is None:
            rows = [
                as_array(self.name, each).astype(float) for each in as_sequence(self.name, inputs)
            ]
        else:
            prepared = model.prepared(inputs)
            rows = [model.source.rows(values) for values in prepared]
        results = self.infer(rows, on, timing, bits=(self.bits,))
        outputs = [
            output[: code.output_rows(len(matrix))]
            for output, matrix in zip(results.outputs, rows, strict=True)
        ]
        if model is not None:
            finished = map(model.source.finish, outputs, prepared)
            outputs = [np.asarray(output, np.float64) for output in finished]
        spent = results.cycles or None, results.mismatches, results.tensors
        return Run(outputs, *spent, dict(results.spent))

    def infer(
        self,
        rows: Sequence[NDArray[Any]],
        on: str | Machine,
        timing: MemoryTiming,
        progress: Progress | None = None,
        bits: Sequence[int] = (OPERAND_BITS,),
    ) -> Inferences:
        """Run an encoder on matrices [tokens, features]; return outputs, cycles and mismatches.

        ``rows`` are the matrices, one for each input. ``on`` is a machine or its name. Mismatches
        are tensors that differ from their reference, as in :meth:`run`. ``progress(done, total)``
        is called with the numbers of finished inputs and of all inputs. Run i, counted from 0,
        reads the upper ``bits[i % len(bits)]`` bits of each weight; less than 8 requires nested
        weights (readable at several widths).

        Raises :class:`InputError` if the program is a language model.
        """
        if self.code.reads_tokens:
            raise InputError(
                f"Program {self.name} is a language model, which reads tokens; use run"
            )
        code = with_trace_port(self.code, on)
        return infer(target(self.code, on, timing), code, rows, timing, progress, bits)

    def check_texts(self, count: int) -> None:
        """Raise :class:`InputError` unless the program was compiled for ``count`` texts at once."""
        if self.code.batch != count:
            own = "1 text" if self.code.batch == 1 else f"{self.code.batch} texts at once"
            raise InputError(f"Program {self.name} is compiled for {own}, not {count}")

    def _text(self, on: str | Machine) -> tuple[Host, TokenizerLike]:
        """Return the code and the tokenizer with which a machine continues texts."""
        code, tokenizer = with_trace_port(self.code, on), self.tokenizer
        if not code.reads_tokens or tokenizer is None:
            raise InputError(f"Program {self.name} is an encoder, which generates no text; use run")
        return code, tokenizer

    def continue_texts(
        self,
        prompts: Sequence[str],
        steps: int,
        on: str | Machine = "golden",
        *,
        sampling: Sampling,
        seed: int = 1,
        show: Callable[[str], None] | None = None,
        timing: MemoryTiming = FAR,
        bits: Sequence[int] = (OPERAND_BITS,),
    ) -> dict[str, Any]:
        """Continue one or two prompts; return the texts and measurements in a dictionary.

        Each prompt is continued by at most ``steps`` tokens. ``sampling`` gives the temperature and
        ``top_p`` with which tokens are drawn; ``seed`` is the seed of the random numbers. ``show``
        is called with the prompt, then with each new part of the continuation. Two prompts are
        continued together, one token of each in a run of the machine, and ``show`` is not called.
        Run i, counted from 0, reads the upper ``bits[i % len(bits)]`` bits of each weight; less
        than 8 requires nested weights (readable at several widths).

        The dictionary has the entries of :func:`celosia.tb.models.run_text.run_text`, or for two
        prompts those of :func:`celosia.tb.models.run_texts.run_texts`. It also has the entries of
        :attr:`made`, which describe the model's quantization.

        Raises :class:`InputError` if a text cannot be continued, or the program is compiled for
        another number of texts.
        """
        code, tokenizer = self._text(on)
        self.check_texts(len(prompts))
        check_bits(bits, self.made["weights"])
        machine, how = target(self.code, on, timing), {"sampling": sampling, "seed": seed}
        how |= {"timing": timing, "bits": bits}
        if len(prompts) > 1:
            figures = run_texts(code, tokenizer, prompts, steps, machine, **how)
        else:
            figures = run_text(code, tokenizer, prompts[0], steps, machine, show=show, **how)
        return {**figures, **self.made, "bits": list(bits)}

    def answer(
        self,
        answers: Sequence[tuple[str, str]],
        on: str | Machine = "golden",
        *,
        timing: MemoryTiming = FAR,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Answer questions whose correct answers are known; return measurements as a dictionary.

        ``answers`` are pairs (question, correct answer). The dictionary has the entries of
        :func:`celosia.tb.models.run_answers.run_answers`. It also has the entries of :attr:`made`,
        which describe the model's quantization. Raises :class:`InputError` if a question has too
        many tokens.
        """
        code, tokenizer = self._text(on)
        self.check_texts(1)
        floats = None if self.model is None else self.model.source
        assert floats is None or isinstance(floats, TextSource)
        machine = target(self.code, on, timing)
        how = {"source": floats, "timing": timing, "progress": progress}
        figures = run_answers(code, tokenizer, answers, machine, **how)
        return {**figures, **self.made, "bits": [OPERAND_BITS]}

    @checked(steps=1, seed=0)
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
        """Yield strings that continue a text by at most ``steps`` tokens.

        An encoder-decoder answers the text instead. Each token gives one string, which is empty
        while a character's bytes are incomplete. After the last token, one more string has the
        rest. If ``temperature`` is 0, each token is the likeliest one. Otherwise each token is
        drawn at random from the smallest set of likeliest tokens whose probabilities sum to at
        least ``top_p``. ``on`` names the machine: ``golden``, a simulator or a board's port. The
        machine's results are checked as in :meth:`run`.

        Raises :class:`InputError` if the text cannot be continued. After the last string, raises
        :class:`RunError` if a result is wrong.
        """
        code, tokenizer = self._text(on)
        self.check_texts(1)
        sampling, machine = Sampling(temperature, top_p), target(self.code, on, timing)
        run = TextRun(code, tokenizer, text, steps, machine, sampling, seed, timing, (self.bits,))
        pieces = run.pieces()
        next(pieces)  # the prompt
        yield from pieces
        wrong = run.figures()["mismatches"]
        if wrong:
            raise RunError(f"{wrong} tensors on {on} differ from those of the golden machine")

    @property
    def is_short(self) -> bool:
        """True if the program's check, :meth:`check`, takes only seconds.

        The attribute is true if an encoder's inference, or six tokens of a language model, take at
        most 10 million predicted cycles.
        """
        runs = TOKENS if self.code.reads_tokens else 1
        return runs * (self.cycles or 0) <= MOST_CYCLES

    def check(self) -> None:
        """Check that the program computes exactly the integers of the quantized model.

        The golden machine runs the program on random inputs. The method also checks that no two
        engines access the same memory in an undefined order (a race). :func:`celosia.compile` calls
        the method if :attr:`is_short` is true. Raises :class:`RunError` if the program is wrong,
        and :class:`InputError` if it was opened from a folder.
        """
        model = self.required_model
        assert isinstance(self.code, Artefact), "a compiled program has its graph"
        check_program(self.code, model)

    def compare(self, inputs: Inputs) -> Comparison:
        """Return each layer's quantization error and the option that would reduce the error most.

        The error is that of the layer's output on ``inputs``, relative to the float model's output.
        To find the option, the function quantizes the model again with each option, such as INT16
        activations or INT8 weights. If no option reduces the error by more than 5 %, the layer's
        option is None. Raises :class:`InputError` if the program was opened from a folder.
        """
        model = self.required_model
        assert self.options is not None, "a compiled program has its options"
        inputs = model.prepared(inputs)
        layers = remedies(model.source, self.config, self.options, self.inputs, inputs)
        return Comparison(layers)

    @property
    def float_source(self) -> Source:
        """The float model from which an encoder was compiled.

        The attribute raises AssertionError for a language model, and for an encoder that was opened
        without its model.
        """
        assert self.model is not None, "the program was opened with its float model"
        assert isinstance(self.model.source, Source)
        return self.model.source

    @property
    def float_name(self) -> str:
        """The name or path of the float model from which the program was compiled.

        If the program was opened without its float model, the value is the program's name.
        """
        return self.name if self.model is None else self.model.name

    @property
    def required_model(self) -> Model:
        """The float model from which :func:`celosia.compile` has made the program.

        Raises :class:`InputError` if :func:`celosia.compile` has not made the program: it was
        opened from a folder.
        """
        if self.model is None or self.options is None:
            raise InputError(
                f"Program {self.name} was opened from a folder, without its float model; load and "
                "compile the model"
            )
        return self.model

    @checked()
    def save(self, folder: str | Path) -> Path:
        """Write the program to a folder, which :func:`celosia.open` reads; return the folder.

        Raises :class:`InputError` if the folder cannot be written, or the program was itself opened
        from a folder.
        """
        return self.export(folder, verilog=False)

    @checked(steps=1)
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
        """Write the program, and files to use it in other projects, to a folder; return the folder.

        The saved program is always written. ``verilog`` adds the accelerator's Verilog. ``c`` adds
        a driver in C and the model as C arrays. ``testbench`` adds the Verilog and a test bench.
        The driver and the test bench run the model on ``inputs``. For an encoder, ``inputs`` are by
        default examples of the model's inputs. For a language model, ``inputs`` are prompts, and
        each prompt is continued by ``steps`` tokens.

        If one file cannot be written, none is written. Raises :class:`InputError` if an input does
        not fit, the folder cannot be written, or the program was opened from a folder.
        """
        rows: Sequence[Any] = ()
        if (c or testbench) and self.code.reads_tokens:
            blank = [""] * self.code.batch
            rows = blank if inputs is None else as_sequence(self.name, inputs)
            for prompt in rows:
                check_type(f"A prompt of program {self.name}", (str,), prompt)
            self.check_texts(len(rows))
        elif c or testbench:
            model = self.required_model
            some = model.prepared(model.examples(COUNT) if inputs is None else inputs)
            rows = [np.asarray(model.source.rows(values), np.float32) for values in some]
        chosen = {"steps": steps, "verilog": verilog, "c": c, "testbench": testbench}
        model, named = self.required_model, {"bits": self.bits, "names": self.names}
        named |= {"origin": model.origin(folder)}
        written = files(self.code, model.source, self.made, rows, **chosen, **named)
        write_files(Path(folder), written, outdated(Path(folder), written))
        return Path(folder)
