"""Testbenches of an accelerator in plain Verilog, which need only the generated files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.registers import REGISTER_MAP
from celosia.generators.export.manifest import PROGRAM_HEX
from celosia.hdl.bus.bus import MAX_WIDTH
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.fast_build import interface
from celosia.tb.verify.random_programs import random_program

TOP = "celosia_accelerator"
"""Default name of the module that is tested; the testbench's is ``TOP_tb``."""

STEPS = 12
"""Random instructions of the program, besides its loading and its drains."""

LATENCY = 10
"""Cycles from a request to external memory to its first word."""

LIMIT = 1_000_000
"""Cycles after which the run of a random program is given up."""

_SOURCE = Path(__file__).parents[1] / "machine" / "harness" / "plain.v"
_REGISTERS = ("PROGRAM_ADDR", "PROGRAM_DATA", "PC", "CONTROL", "STATUS", "CYCLES_LOW")
_WIDTHS = ("MEM_WIDTH", "BURST_WIDTH", "WRITE_WIDTH")
_FIELDS = ("BURST_ADDR", "BURST_LAST", "WRITE_DATA", "WRITE_MASK")


class Action(IntEnum):
    """Action of a testbench's step on the accelerator and its external memory.

    A step sets a memory word or a register, runs the program, or compares a memory word or a
    register with the expected value.
    """

    SET_WORD = 0
    SET_REGISTER = 1
    RUN = 2
    WORD_IS = 3
    REGISTER_IS = 4


@dataclass(frozen=True)
class Attachment:
    """Bus protocols of an accelerator's host port and memory ports.

    ``control`` is the protocol of the host port, ``bus`` the protocol of the memory bus. External
    memory starts at the bus address ``base``; bus addresses have ``addr_width`` bits.
    """

    control: str = "native"
    bus: str = "native"
    addr_width: int = 32
    base: int = 0


@dataclass
class Steps:
    """Steps that a testbench executes after it has loaded its program, as the lines of a text file.

    Each line of ``lines`` is a step or a comment; ``count`` is the number of steps.
    """

    config: Config
    lines: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def value_width(self) -> int:
        """Width of the data in each testbench step (bits): of a memory word, but at least 32.

        A testbench step writes a memory word or a register, runs the program, or compares a memory
        word or a register with the expected data. A register has 32 bits.
        """
        return max(self.config.memory.width, 32)

    def say(self, text: str) -> None:
        """Add a comment line with ``text`` to the lines of the file."""
        self.lines.append(f"// {text}")

    def add(self, action: Action, place: int = 0, value: int = 0) -> None:
        """Add a step: an action with a value, on a word of external memory or on a register.

        ``place`` is the word's number in external memory, or the register's address.
        """
        self.lines.append(f"{action:02x}{place:08x}{value:0{self.value_width // 4}x}")
        self.count += 1

    def add_words(self, action: Action, addr: int, data: bytes) -> None:
        """Append one step per word of ``data``; each step sets or compares a word in memory.

        ``action`` is SET_WORD for steps that set words of external memory, or WORD_IS for steps
        that compare words. ``addr`` is the byte address of the first word. If the last word is
        incomplete, zeros fill it.
        """
        step = self.config.mem_bytes
        padded = data + bytes(-len(data) % step)
        for place in range(0, len(padded), step):
            value = int.from_bytes(padded[place : place + step], "little")
            self.add(action, (addr + place) // step, value)


def testbench(config: Config, seed: int, attachment: Attachment, top: str) -> dict[str, str]:
    """Return a testbench with a random program, a dictionary from file name to text.

    ``top`` names the accelerator's module. The results are compared with the golden machine's. The
    last line of the simulation begins with PASS or FAIL. Raises :class:`InputError` if the program
    memory is too small.
    """
    # The program reads only what it has written, so initial contents do not matter.
    program = random_program(config, np.random.default_rng(seed), STEPS, alone=True)
    if len(program.words) > config.control.program_depth:
        raise InputError(
            f"A testbench needs {len(program.words)} words of program, but program_depth is "
            f"{config.control.program_depth}"
        )
    end = program.result_addr + program.result_bytes
    end += -end % config.mem_bytes
    golden = Interpreter(config)
    before = program.image + bytes(end - len(program.image))
    golden.write_memory(0, before)
    golden.load_program(program.words)
    report = golden.start()
    steps = Steps(config)
    steps.add(Action.RUN)
    steps.add_words(Action.WORD_IS, 0, golden.read_memory(0, end))
    # What is not counted is read as 0.
    products = report.counters["macs"] if config.control.counters else 0
    steps.add(Action.REGISTER_IS, REGISTER_MAP["MACS_LOW"].addr, products)
    return testbench_files(
        config, attachment, program.words, before, steps, LIMIT, top, PROGRAM_HEX
    )


def testbench_files(
    config: Config,
    attachment: Attachment,
    words: Sequence[int],
    memory: bytes,
    steps: Steps,
    limit: int,
    top: str,
    program: str,
) -> dict[str, str]:
    """Return the files of an accelerator's testbench, a dictionary from file name to text.

    The testbench loads the instructions ``words`` (in the file ``program``) and external memory's
    content ``memory``. Then it executes ``steps``. Loading, and each run, may take ``limit``
    cycles. ``top`` is the accelerator's module.
    """
    ports = interface(config)
    defines: dict[str, int | str] = {name: ports[name] for name in _WIDTHS}
    for name in _FIELDS:
        defines |= {f"{name}_{part}": ports[f"{name}_{part}"] for part in ("LSB", "WIDTH")}
    defines |= {name: REGISTER_MAP[name].addr for name in _REGISTERS}
    defines |= {
        "MEMORY_WORDS": -(-len(memory) // config.mem_bytes),
        "PROGRAM_WORDS": len(words),
        "STEPS": steps.count,
        "STEP_WIDTH": 40 + steps.value_width,
        "VALUE_WIDTH": steps.value_width,
        "LATENCY": LATENCY,
        "LIMIT": limit,
        "BUS_BASE": f"{MAX_WIDTH}'h{attachment.base:x}",
        "BUS_ADDR_WIDTH": attachment.addr_width,
    }
    source = _SOURCE.read_text(encoding="utf-8").replace(TOP, top).replace(PROGRAM_HEX, program)
    header = "".join(f"`define {name} {value}\n" for name, value in defines.items())
    header += "`define THROTTLE\n" if config.throttle else ""
    for name, choice in (("CONTROL", attachment.control), ("BUS", attachment.bus)):
        header += f"`define {name}_{choice.upper().replace('-', '_')}\n"
    return {
        f"{top}_tb.v": header + "\n" + source,
        program: program_text(words),
        "memory.hex": _words(memory, config),
        "steps.hex": "".join(f"{line}\n" for line in steps.lines),
    }


def program_text(words: Sequence[int]) -> str:
    """Return a program as hexadecimal text, one instruction word per line."""
    return "".join(f"{word:08x}\n" for word in words)


def _words(data: bytes, config: Config) -> str:
    """Return external memory as text, a word a line."""
    step = config.mem_bytes
    places = range(0, len(data), step)
    return "".join(f"{data[place : place + step][::-1].hex()}\n" for place in places)
