"""Records a host's actions on the golden machine as the steps of a plain Verilog testbench."""

from collections.abc import Sequence

from celosia.arch.config import Config
from celosia.arch.registers import REGISTER_MAP
from celosia.sim.interpreter import Interpreter
from celosia.sim.report import Report
from celosia.tb.models.plain_testbench import Action, Steps

SLACK = 4
"""A run is given up after this multiple of its predicted cycles."""


class StepWriter:
    """A golden machine that records each action of its host as a step of a testbench.

    When the host reads a value from the golden machine, a step is added. In this step the testbench
    reads the same memory word or register, and compares its value with the golden machine's.
    """

    def __init__(self, config: Config):
        self._machine, self._config = Interpreter(config), config
        self.steps = Steps(config)
        self.words: Sequence[int] = []
        """Program memory before the first step."""
        self._image = b""
        self._loads = 0

    def memory(self, size: int) -> bytes:
        """Return the initial content of the testbench's external memory, as bytes.

        The content begins with the bytes that the host wrote before it loaded the first program.
        Zeros follow, up to ``size`` bytes. If ``size`` is not a multiple of the bytes of a memory
        word, zeros fill the last word.
        """
        padded = self._image + bytes(size - len(self._image))
        return padded + bytes(-size % self._config.mem_bytes)

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory from the byte address ``addr`` on.

        Before the first program is loaded, ``addr`` must be 0, and the bytes are the memory's
        initial content. After that, one step for each memory word is added to the testbench; the
        step writes the word.
        """
        self._machine.write_memory(addr, data)
        if self._loads:
            self.steps.add_words(Action.SET_WORD, addr, data)
        else:
            self._image = data

    def load_program(self, words: Sequence[int]) -> None:
        """Load the words of a program to program memory.

        The testbench starts with the first program in program memory. For each later program, steps
        that write its words to program memory are appended to ``steps``, the testbench's list of
        actions.
        """
        self._machine.load_program(words)
        if not self._loads:
            self.words = words
        else:
            self.steps.say("program")
            self.steps.add(Action.SET_REGISTER, REGISTER_MAP["PROGRAM_ADDR"].addr, 0)
            for word in words:
                self.steps.add(Action.SET_REGISTER, REGISTER_MAP["PROGRAM_DATA"].addr, word)
        self._loads += 1

    def set_register(self, number: int, value: int) -> None:
        """Set the sequencer's register ``number`` to ``value``.

        One step is appended to ``steps``, the testbench's list of actions. In this step the
        testbench writes ``value`` to the same register.
        """
        self._machine.set_register(number, value)
        self.steps.add(Action.SET_REGISTER, REGISTER_MAP[f"R{number}"].addr, value)

    def start(self, pc: int = 0) -> Report:
        """Run the golden machine's program from the word address ``pc`` to HALT.

        One step is appended to ``steps``, the testbench's list of actions. In this step the
        testbench runs the accelerator from the same address. Return the golden machine's counters
        and signatures (hashes of the written bytes).
        """
        self.steps.add(Action.RUN, value=pc)
        return self._machine.start(pc)

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return ``count`` bytes of the golden machine's external memory.

        The byte address ``addr`` must be a multiple of the bytes of a memory word. One step for
        each memory word is added to the testbench; the step compares the testbench's word with the
        golden machine's.
        """
        whole = -(-count // self._config.mem_bytes) * self._config.mem_bytes
        self.steps.add_words(Action.WORD_IS, addr, self._machine.read_memory(addr, whole))
        return self._machine.read_memory(addr, count)

    def read_register(self, name: str) -> int:
        """Return the value of the host port's register ``name``.

        One step is appended to ``steps``, the testbench's list of actions. In this step the
        testbench reads the same register and compares its value with the returned value.
        """
        value = self._machine.read_register(name) % (1 << 32)
        self.steps.add(Action.REGISTER_IS, REGISTER_MAP[name].addr, value)
        return self._machine.read_register(name)

    def all_runs_ended_well(self) -> bool:
        """Return whether all runs so far ended without an error or a reset: always True.

        Runs on the golden machine have neither errors nor resets.
        """
        return self._machine.all_runs_ended_well()
