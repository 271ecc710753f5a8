"""Checks of compiled programs on the golden machine, against the quantized model."""

import itertools
from collections.abc import Sequence
from typing import Any

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import REGISTERS
from celosia.generators.frontend.weights import Floats
from celosia.generators.graph.fewer_planes import BITS, is_nested
from celosia.generators.lower.artefact import Artefact
from celosia.generators.runtime.golden import GoldenModel
from celosia.sim.checker import check
from celosia.sim.interpreter import Interpreter
from celosia.sim.report import Report
from celosia.tb.models.text_session import TextSession
from celosia.tb.models.texts_session import TextsSession
from celosia.tb.models.whole_model import differing

STEPS = 2
"""Tokens of a text that run one by one, after its prompt."""
_UNWRITTEN = 0xA5  # a byte of the scratchpad that no instruction has written


def widths_of(program: Artefact) -> tuple[int, ...]:
    """Return the numbers of upper bits that a program can read of each weight.

    For weights stored as bit planes, the result is (8, 4, 2). For all other weights, it is (8,).
    """
    return BITS if is_nested(program.graph) else BITS[:1]


def encoder_error(compiled: Artefact, inputs: Sequence[Floats]) -> str:
    """Return the first error of an encoder's program as a sentence, or an empty text.

    The program is checked for races of engines. The golden machine's tensors for ``inputs``,
    matrices [tokens, features], must equal the integer reference's. If the program can read fewer
    bits of each weight, all these numbers of bits are tested.
    """
    config = compiled.config
    if len(compiled.words) > config.control.program_depth:
        return f"{len(compiled.words)} words are more than {config.control.program_depth}"
    if config.micro is None:
        for rows in {min(compiled.writes), max(compiled.writes)}:
            request = compiled.request_at(rows).registers
            registers = [request.get(number, 0) for number in range(REGISTERS)]
            try:
                for entry in compiled.entries.values():
                    check(compiled.words, config, entry.pc, registers)
            except ProgramError as error:
                return f"The compiler's program is refused: {error}"
    golden = GoldenModel(compiled)
    golden.machine.sp.fill(_UNWRITTEN)
    samples = compiled.batches(inputs)
    # A second run of weights that stay on the chip does not load them.
    samples += samples[-1:] if compiled.keeps else []
    for values, bits in itertools.product(samples, widths_of(compiled)):
        tensors = golden.tensors(values, bits)
        data = golden.machine.read_memory(compiled.output_addr, compiled.output_count)
        wrong, _ = differing(compiled, tensors, values, bits, compiled.output_integers(data))
        if wrong:
            return f"Tensor {wrong[0]} differs from the integer reference"
    return ""


class CheckedMachine(Interpreter):
    """The golden machine, which first checks each program for races of engines."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.sp.fill(_UNWRITTEN)

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program; each start address of the new program is checked at its first run."""
        super().load_program(words)
        self._checked = set[int]()

    def start(self, pc: int = 0) -> Report:
        """Run the program from the word address ``pc`` to HALT, after a check for races of engines.

        Only the first run from each address is checked, with the registers of this run. Raises
        :class:`ProgramError` if the check fails.
        """
        if pc not in self._checked:
            check(self.words, self.config, pc, self.registers)
            self._checked.add(pc)
        return super().start(pc)


def decoder_error(program: Artefact, texts: Sequence[Sequence[int]]) -> str:
    """Return the first error of a language model's program as a sentence, or an empty text.

    The program is checked for races of engines. The golden machine's logits for ``texts``, lists of
    token numbers, must equal the integer reference's. If the program can read fewer bits of each
    weight, all these numbers of bits are tested.
    """
    for bits in widths_of(program):
        try:
            session = session_of(program, CheckedMachine(program.config))
            wrong = wrong_tensors(session, texts, bits)
        except ProgramError as error:
            return f"The compiler's program is refused: {error}"
        if wrong:
            return f"{wrong} differ from the integer reference"
    return ""


def session_of(program: Artefact, *machine: Any) -> TextSession:
    """Return a session in which a machine runs a language model on texts.

    If the program processes two texts at once, the session is a :class:`TextsSession`. Otherwise
    the session is a :class:`TextSession`, which processes one text after another.
    """
    return (TextsSession if program.batch > 1 else TextSession)(program, *machine)


def wrong_tensors(
    session: TextSession, texts: Sequence[Sequence[int]], bits: int = OPERAND_BITS
) -> str:
    """Run a language model on texts; return the names of wrong tensors, separated by commas.

    ``texts`` are lists of token numbers. Logits and chosen tokens are compared with the integer
    reference's. A circuit's tensors are also compared with the golden machine's. ``bits`` (8, 4 or
    2) is the number of upper bits read of each weight.
    """
    session.bits = bits
    if isinstance(session, TextsSession):
        _advance(session, texts)
    else:
        for text in texts:
            _answer(session, text)
    return ", ".join(name for turn in session.turns for name in turn.wrong)


def _answer(session: TextSession, text: Sequence[int]) -> None:
    """Run the tokens of one text from its beginning."""
    if session.program.source_positions:
        session.encode(text[: session.program.source_positions])
    else:
        session.begin()
    # A token is chosen after at least one.
    prompt = text[:-STEPS] or text[:1]
    session.take(prompt)
    for number in text[len(prompt) :]:
        session.choose()
        session.step(number)
    session.logits()


def _advance(session: TextsSession, texts: Sequence[Sequence[int]]) -> None:
    """Run two texts at once; the shorter one ends earlier."""

    def logits(_: int) -> None:
        session.logits()

    for place in range(max(map(len, texts))):
        tokens = [text[place] if place < len(text) else None for text in texts]
        session.advance(tokens, logits)
