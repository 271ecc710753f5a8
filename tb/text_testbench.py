"""A compiled decoder in a testbench of plain Verilog: a text, and what the golden machine takes."""

from collections.abc import Sequence

from arch.formats import OPERAND_BITS
from arch.registers import REGISTER_MAP
from generators.text_host import TextHost
from generators.text_sources import TokenizerLike
from sim.interpreter import Interpreter
from sim.report import Report
from tb.model_testbench import SLACK
from tb.plain_testbench import LATENCY, Action, Attachment, Steps, testbench_files
from tb.run_text import run_text

FIRST = "first.hex"
"""The program that fills the chip first, as text."""


class StepWriter:
    """A golden machine that writes down what its host does, and what it reads, as steps."""

    def __init__(self, program: TextHost):
        self._machine = Interpreter(program.config)
        self._program = program
        self.steps = Steps(program.config)
        self.first: tuple[bytes, Sequence[int]] = (b"", [])
        """External memory and program memory before the first step."""
        self._loads = 0

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory; the first ones are there already."""
        self._machine.write_memory(addr, data)
        if self._loads:
            self.steps.add_words(Action.SET_WORD, addr, data)
        else:
            self.first = (data, [])

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program's words; the first ones are there already."""
        self._machine.load_program(words)
        if not self._loads:
            self.first = (self.first[0], words)
        else:
            self.steps.say("program")
            self.steps.add(Action.SET_REGISTER, REGISTER_MAP["PROGRAM_ADDR"].addr, 0)
            for word in words:
                self.steps.add(Action.SET_REGISTER, REGISTER_MAP["PROGRAM_DATA"].addr, word)
        self._loads += 1

    def set_register(self, number: int, value: int) -> None:
        """Set a register."""
        self._machine.set_register(number, value)
        self.steps.add(Action.SET_REGISTER, REGISTER_MAP[f"R{number}"].addr, value)

    def start(self, pc: int = 0) -> Report:
        """Run from a word address to HALT."""
        self.steps.add(Action.RUN, value=pc)
        return self._machine.start(pc)

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return bytes of external memory, whole words of which are compared."""
        whole = -(-count // self._program.config.mem_bytes) * self._program.config.mem_bytes
        self.steps.add_words(Action.WORD_IS, addr, self._machine.read_memory(addr, whole))
        return self._machine.read_memory(addr, count)

    def read_register(self, name: str) -> int:
        """Return a register, which is compared."""
        value = self._machine.read_register(name) % (1 << 32)
        self.steps.add(Action.REGISTER_IS, REGISTER_MAP[name].addr, value)
        return self._machine.read_register(name)

    def unbroken(self) -> bool:
        """Return whether runs have ended since the last call, all well, without a reset."""
        return self._machine.unbroken()


def text_testbench(
    program: TextHost,
    tokenizer: TokenizerLike,
    prompt: str,
    count: int,
    attachment: Attachment,
    top: str,
    bits: int = OPERAND_BITS,
) -> dict[str, str]:
    """Return the files of a module's testbench by name: the Verilog, memory and steps.

    It fills the chip, goes on with a prompt by at most ``count`` tokens, and compares each choice
    with the golden machine's. Nested weights are read at so many ``bits``. The simulation ends with
    a line that begins with PASS or FAIL.
    """
    writer = StepWriter(program)
    run_text(program, tokenizer, prompt, count, writer, bits=(bits,))
    memory, words = writer.first
    memory += bytes(program.memory_bytes - len(memory))
    memory += bytes(-len(memory) % program.config.mem_bytes)
    longest = max(len(program.words), *(len(fill.words) for fill in program.setup))
    limit = SLACK * (_cycles(program, bits) + longest + len(memory))
    return testbench_files(
        program.config, attachment, words, memory, writer.steps, limit, top, FIRST
    )


def _cycles(program: TextHost, bits: int) -> int:
    """Return the cycles that are expected of a chunk or a step, whichever takes more."""
    position = min(program.cache.capacity, program.places) - program.rows
    return program.predict(position, LATENCY, rows=program.rows, bits=bits).cycles
