"""The host's registers, defined once."""

import enum
from dataclasses import dataclass
from typing import Literal

from arch.isa import REGISTERS, Engine

IDENTITY = 0xCE105A01
"""Value of ID; its low byte is the version of this register map."""

Access = Literal["read", "write", "read/write"]


@dataclass(frozen=True)
class Field:
    """Some bits of a register, from ``low`` on."""

    name: str
    low: int
    width: int
    meaning: str


@dataclass(frozen=True)
class Register:
    """One 32-bit register."""

    name: str
    addr: int
    access: Access
    meaning: str
    fields: tuple[Field, ...] = ()
    """Its parts; none where the whole register is one value."""


class Cause(enum.IntEnum):
    """Why a run was stopped, as the field CAUSE of STATUS tells it."""

    NONE = 0
    INSTRUCTION = 1
    LOOP = 2
    REGISTER = 3
    PROGRAM = 4
    TOKENS = 5
    DEADLOCK = 6
    MEMORY = 7
    SILENCE = 8
    ABORTED = 9
    CORRUPTED = 10


CAUSE_MEANINGS = {
    Cause.NONE: "nothing stopped it",
    Cause.INSTRUCTION: "the program has an instruction that this machine does not have",
    Cause.LOOP: "the program has loops too deep, of no valid count, or ended without a beginning",
    Cause.REGISTER: "the program sets a register that there is not",
    Cause.PROGRAM: "the program counter left the program memory",
    Cause.TOKENS: "a token count overflowed",
    Cause.DEADLOCK: "every engine waits for tokens that none gives",
    Cause.MEMORY: "external memory failed to read or write",
    Cause.SILENCE: "external memory did not answer in time",
    Cause.ABORTED: "the host aborted it",
    Cause.CORRUPTED: "a memory of the machine held a wrong word, or a register was not as its copy",
}
"""Each cause in a sentence about the run or its program."""

CONTROL_START, CONTROL_ABORT, CONTROL_FORGET = 1, 2, 4
"""Bits of CONTROL, each a command."""

STATUS_BUSY, STATUS_ERROR, STATUS_RECOVERING = 1, 2, 4
INTERRUPT_DONE, INTERRUPT_ERROR = 1, 2
"""Bits of STATUS."""

CAUSE_SHIFT, CAUSE_WIDTH = 4, 4
"""Place of the field CAUSE in STATUS (bits)."""


def cause_of(status: int) -> Cause:
    """Return why the latest run was stopped, from the value of STATUS."""
    return Cause(status >> CAUSE_SHIFT & ((1 << CAUSE_WIDTH) - 1))


_INTERRUPTS = (
    Field("DONE", 0, 1, "a run has ended by HALT"),
    Field("ERROR", 1, 1, "a run was stopped"),
)

FIELDS = {
    "CONTROL": (
        Field("START", 0, 1, "starts a run at PC"),
        Field("ABORT", 1, 1, "stops what runs and resets the core, external memory's answers kept"),
        Field("FORGET", 2, 1, "aborts, and forgets what external memory has yet to answer"),
    ),
    "STATUS": (
        Field("BUSY", 0, 1, "busy"),
        Field("ERROR", 1, 1, "the latest run was stopped"),
        Field("RECOVERING", 2, 1, "after reset or abort, not all is cleared and answered yet"),
        Field("CAUSE", CAUSE_SHIFT, CAUSE_WIDTH, "why it was stopped"),
    ),
    "INTERRUPT": _INTERRUPTS,
    "INTERRUPT_ENABLE": _INTERRUPTS,
}
"""The fields of the registers that have any."""


COUNTERS = {
    "CYCLES": "cycles from start until halt",
    "MACS": "useful products",
    "GATED": "zero activations that entered the array",
    "SKIPPED": "zero weights that SPARSE passed over",
    "LOADED": "words read from external memory",
    "STORED": "words written to external memory",
} | {
    f"{kind}_{engine.name}": f"cycles in which the {engine.name} engine {meaning}"
    for kind, meaning in (
        ("BUSY", "had a command"),
        ("STALL", "had a command and waited for a memory"),
        ("WAIT", "had only a command that waited for tokens"),
        ("IDLE", "had no command"),
    )
    for engine in Engine
}
ARRAY_CAUSES = {
    "PRODUCT": "in which a vector of activations set out for the array",
    "MEMORY": "in which a scratchpad port kept the array's next vector waiting",
    "WAIT_LOAD": "in which the array only waited for tokens of the LOAD engine",
    "WAIT_VECTOR": "in which the array only waited for tokens of the VECTOR engine",
    "WAIT_STORE": "in which the array only waited for tokens of the STORE engine",
    "FILL": "in which weights or sums of the array's commands were still on their way",
    "QUEUE": "in which the array had no command, and the next instruction found its queue full",
    "FETCH": "in which the array had no command, and instructions were fetched",
    "OVER": "in which the array had no command, and the program had no more",
}
"""Use of a cycle by the array, or the cause of an idle one."""

COUNTERS |= {f"ARRAY_{name}": f"cycles {meaning}" for name, meaning in ARRAY_CAUSES.items()}
COUNTERS["SPAN_MATRIX"] = (
    "cycles from the MATRIX engine's first tile until its last sum was written, pauses included"
)
COUNTERS["VECTOR_READ"] = "lines that the VECTOR engine read from the scratchpad"
COUNTERS["VECTOR_WRITTEN"] = "lines that the VECTOR engine wrote to the scratchpad"
COUNTERS["CORRECTED"] = "cycles in which a memory of the machine corrected words"
"""The counters, all cleared at start; each is read as NAME_LOW and NAME_HIGH.

Every cycle of a run is one of each engine's BUSY, WAIT and IDLE, and one of the array's; the last
three of these are IDLE_MATRIX.
"""


def _bits(name: str) -> str:
    """Return the meaning of a register as that of its fields."""
    return "; ".join(f"{_place(field)} {field.meaning}" for field in FIELDS[name])


def _place(field: Field) -> str:
    if field.width == 1:
        return f"bit {field.low}"
    return f"bits {field.low + field.width - 1}:{field.low}"


def _registers() -> list[Register]:
    entries: list[tuple[str, Access, str]] = [
        ("ID", "read", f"0x{IDENTITY:08X}"),
        ("CONTROL", "write", _bits("CONTROL")),
        ("STATUS", "read", _bits("STATUS")),
        ("PC", "read/write", "word address at which a run starts"),
        ("PROGRAM_ADDR", "write", "word address of the next PROGRAM_DATA"),
        ("PROGRAM_DATA", "write", "writes a program word and moves PROGRAM_ADDR on"),
        ("ARGMAX", "read", "column of the largest element that argmax found last"),
        ("ARGMAX_VALUE", "read", "that element, 16 bits with their sign"),
        ("INTERRUPT", "read/write", f"{_bits('INTERRUPT')}; writing 1 takes a bit back"),
        ("INTERRUPT_ENABLE", "read/write", "the bits of INTERRUPT that raise the line `irq`"),
    ]
    registers = [
        Register(name, addr, access, meaning, FIELDS.get(name, ()))
        for addr, (name, access, meaning) in enumerate(entries)
    ]
    registers += [
        Register(f"R{number}", 16 + number, "write", f"register {number} of the sequencer")
        for number in range(1, REGISTERS)
    ]
    for index, (name, meaning) in enumerate(COUNTERS.items()):
        registers.append(Register(f"{name}_LOW", 64 + 2 * index, "read", f"{meaning}, bits 31:0"))
        registers.append(Register(f"{name}_HIGH", 65 + 2 * index, "read", f"{meaning}, bits 47:32"))
    return registers


REGISTER_MAP = {register.name: register for register in _registers()}
"""Every register by name; ``addr`` is a word index on the host port."""

COUNTER_WIDTH = 48
"""Width of a counter (bits)."""


NAME = "celosia_registers"
"""Name of the address map."""

_SOFTWARE = {"read": "r", "write": "w", "read/write": "rw"}
_WORD_BYTES = 4


def systemrdl() -> str:
    """Return the SystemRDL text of every register, at byte addresses.

    A register without fields of its own has one, ``VALUE``, of all 32 bits.
    """
    lines = [
        f"addrmap {NAME} {{",
        '    name = "Registers of a Celosia accelerator";',
        "    default regwidth = 32;",
        "    default hw = na;",
        *(line for register in REGISTER_MAP.values() for line in _register(register)),
        "};",
    ]
    return "\n".join(lines) + "\n"


def _register(register: Register) -> list[str]:
    """Return the lines of a register."""
    access = _SOFTWARE[register.access]
    fields = register.fields or (Field("VALUE", 0, 32, register.meaning),)
    reset = f" reset = 32'h{IDENTITY:08x};" if register.name == "ID" else ""
    return [
        "    reg {",
        f'        name = "{register.name}";',
        f'        desc = "{_text(register.meaning)}";',
        *(
            f'        field {{ sw = {access}; desc = "{_text(field.meaning)}";{reset} }} '
            f"{field.name}[{field.low + field.width - 1}:{field.low}];"
            for field in fields
        ),
        f"    }} {register.name} @ 0x{_WORD_BYTES * register.addr:X};",
    ]


def _text(meaning: str) -> str:
    """Return a meaning as the inside of a string of SystemRDL."""
    return meaning.replace("\\", "\\\\").replace('"', '\\"')
