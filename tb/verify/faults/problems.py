"""Inferences of trained models; faults are injected while they run."""

from abc import ABC, abstractmethod

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.generators.frontend import digits
from celosia.generators.frontend.text_sources import is_text, load_text
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.runtime.golden import GoldenModel
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.text_session import TextSession
from celosia.tb.verify.faults.faulty_machine import FaultMachine

INFERENCES = 64
"""Different inferences of a campaign; higher numbers repeat them."""

BEFORE, CONTEXT = 6, 32
"""Tokens before the one of a step, and the number that the cache has room for."""


class Problem(ABC):
    """Inferences of a model on a simulated machine, for fault injection.

    Each inference first runs without a fault. Then the run is repeated, each time with one fault.
    """

    machine: FaultMachine
    expected: bytes
    """Result of the last inference without a fault, as bytes."""
    choice: int
    """Class or token with the largest output in ``expected``."""
    cycles: int
    """Number of cycles of the last inference without a fault."""

    def __init__(self) -> None:
        self._number = -1

    def infer(self, number: int) -> None:
        """Run an inference without a fault, and set ``cycles``, ``expected`` and ``choice``.

        ``number`` modulo ``INFERENCES`` selects the model's input. If the previous call selected
        the same input, this call does nothing. Raises :class:`RunError` if the machine's result
        differs from the golden machine's.
        """
        number %= INFERENCES
        if number != self._number:
            self._infer(number)
            self._number = number
            self.expected = self.outputs()
            self.choice = self.chosen(self.expected)

    @abstractmethod
    def _infer(self, number: int) -> None:
        """Run an inference by its number, the machine armed for its run."""

    @abstractmethod
    def outputs(self) -> bytes:
        """Return the bytes of the result of the machine's last run."""

    @abstractmethod
    def chosen(self, outputs: bytes) -> int:
        """Return the class or token that a result selects; ``outputs`` are the result's bytes."""


class DigitsProblem(Problem):
    """Inferences of a model that classifies digits, on test images of scikit-learn's digits."""

    def __init__(self, compiled: Artefact):
        super().__init__()
        self._compiled = compiled
        self._golden = GoldenModel(compiled)
        _, test = digits.load()
        self._inputs = digits.patches(test.images[:INFERENCES])

    def _infer(self, number: int) -> None:
        compiled = self._compiled
        size = 1 << (compiled.memory_bytes - 1).bit_length()
        # A new machine, so that no trace of a fault reaches the next inference.
        machine = FaultMachine(compiled.config, memory_bytes=size, **PROMPT.fields())
        machine.write_memory(0, compiled.image.tobytes())
        machine.load_program(compiled.words)
        compiled.request(self._inputs[number]).give(machine)
        self.machine = machine
        self.machine.armed = True
        self.cycles = self.machine.start().cycles
        output, _ = self._golden.run(self._inputs[number])
        if not np.array_equal(compiled.read_output(self.outputs()), output):
            raise RunError(f"Image {number} without a fault differs from the golden machine")

    def outputs(self) -> bytes:
        """Return the bytes of the model's output in external memory."""
        return self.machine.read_memory(self._compiled.output_addr, self._compiled.output_count)

    def chosen(self, outputs: bytes) -> int:
        """Return the class with the largest output; ``outputs`` are the bytes of all outputs."""
        return int(np.argmax(self._compiled.read_output(outputs)[0]))


class TextProblem(Problem):
    """Inferences of a language model, for fault injection.

    An inference processes one random token after ``BEFORE`` others. Its result is the next token
    with its logit, so errors in new keys and values do not show. Raises :class:`InputError` if
    ``argmax`` is false, or the model is an encoder-decoder.
    """

    def __init__(self, model: str, config: Config):
        super().__init__()
        if not config.vector.argmax:
            raise InputError(f"Faults in a language model need argmax, which {config.name} lacks")
        source = load_text(model)
        source.description.refuse_source("A campaign of faults")
        decoder = source.quantize()
        context = min(decoder.places, config.vector.longest_row, CONTEXT)
        self._program = compile_text(decoder, config, context=context)
        self._vocabulary = decoder.description.vocabulary

    def _infer(self, number: int) -> None:
        program = self._program
        size = 1 << (program.memory_bytes - 1).bit_length()
        machine = FaultMachine(program.config, memory_bytes=size, **PROMPT.fields())
        session = TextSession(program, machine)
        rng = np.random.default_rng(number)
        *first, last = (int(token) for token in rng.integers(self._vocabulary, size=BEFORE + 1))
        session.take(first)
        machine.armed = True
        self.machine = machine
        self.cycles = session.step(last).cycles
        session.choose()
        if session.turns[-1].mismatches:
            raise RunError(f"Text {number} without a fault differs from the golden machine")

    def outputs(self) -> bytes:
        """Return the bytes of two INT64: the most likely token, and its logit."""
        registers = [self.machine.read_register(name) for name in ("ARGMAX", "ARGMAX_VALUE")]
        return np.array(registers, np.int64).tobytes()

    def chosen(self, outputs: bytes) -> int:
        """Return the number of the token with the largest logit, which is part of ``outputs``.

        ``outputs`` is a result of :meth:`outputs`: the bytes of this token number and of its logit,
        each as an INT64.
        """
        return int(np.frombuffer(outputs, np.int64)[0])


def open_problem(model: str, config: Config) -> Problem:
    """Return inferences of a model on a simulated machine, into which faults can be injected.

    ``model`` names a language model, or one of Celosia's models that classify digits. Raises
    :class:`InputError` if the model is unknown, or does not fit the configuration.
    """
    if is_text(model):
        return TextProblem(model, config)
    return DigitsProblem(compile_digits(model, config))
