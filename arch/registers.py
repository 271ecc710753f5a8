"""The registers that a host accesses: their addresses, fields, descriptions and SystemRDL text."""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from celosia.arch.isa import IMMEDIATE_WIDTH, REGISTERS, Engine
from celosia.arch.tables import own_table
from celosia.arch.templates import rendered

IDENTITY = 0xCE105A01
"""Value of ID; its low byte is the version of this register map."""

Access = Literal["read", "write", "read/write"]


@dataclass(frozen=True)
class Field:
    """A field of a register: adjacent bits; ``low`` is the number of the lowest bit."""

    name: str
    low: int
    width: int
    meaning: str


@dataclass(frozen=True)
class Register:
    """A 32-bit register of the host port.

    ``addr`` is its word address. ``access`` states whether the host may read it, write it, or both.
    ``meaning`` describes the register in a phrase, such as "word address at which a run starts".
    """

    name: str
    addr: int
    access: Access
    meaning: str
    fields: tuple[Field, ...] = ()
    """Its fields; empty if the whole register is one value."""


class Cause(enum.IntEnum):
    """The reason for which a run was stopped, as encoded in field CAUSE of register STATUS."""

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


_TABLES = own_table("registers")
CAUSE_MEANINGS: dict[Cause, str] = {
    Cause[name]: meaning for name, meaning in _TABLES["causes"].items()
}
"""A sentence for each cause."""

CONTROL_START, CONTROL_ABORT, CONTROL_FORGET = 1, 2, 4
"""Bits of CONTROL; each is a command."""

STATUS_BUSY, STATUS_ERROR, STATUS_RECOVERING = 1, 2, 4
INTERRUPT_DONE, INTERRUPT_ERROR = 1, 2
"""Bits of STATUS."""

CAUSE_SHIFT, CAUSE_WIDTH = 4, 4
"""Place of the field CAUSE in STATUS (bits)."""


def cause_of(status: int) -> Cause:
    """Return the reason for which the latest run was stopped, decoded from ``status``.

    ``status`` is a value that the host has read from the register STATUS. If nothing stopped the
    run, the result is :attr:`Cause.NONE`.
    """
    return Cause(status >> CAUSE_SHIFT & ((1 << CAUSE_WIDTH) - 1))


FIELDS = {
    register: tuple(Field(name, *values) for name, values in fields.items())
    for register, fields in _TABLES["fields"].items()
}
"""The fields of the registers that have any."""

ARRAY_CAUSES: dict[str, str] = _TABLES["array"]
"""Each use of an array cycle, and each cause of an idle one."""

COUNTERS: dict[str, str] = (
    _TABLES["counters"]
    | {
        f"{kind}_{engine.name}": f"cycles in which the {engine.name} engine {meaning}"
        for kind, meaning in _TABLES["engine"].items()
        for engine in Engine
    }
    | {f"ARRAY_{name}": f"cycles {meaning}" for name, meaning in ARRAY_CAUSES.items()}
    | _TABLES["last"]
)
"""The counters, all cleared at start; each is read as NAME_LOW and NAME_HIGH.

For each engine every cycle of a run counts as BUSY, WAIT or IDLE. For the array it counts as one of
its causes; the last three of these are cycles of IDLE_MATRIX.
"""


def _place(field: Field) -> str:
    if field.width == 1:
        return f"bit {field.low}"
    return f"bits {field.low + field.width - 1}:{field.low}"


def _registers() -> list[Register]:
    registers = []
    for addr, (name, (access, meaning)) in enumerate(_TABLES["registers"].items()):
        fields = FIELDS.get(name, ())
        bits = "; ".join(f"{_place(field)} {field.meaning}" for field in fields)
        text = meaning.format(fields=bits, identity=IDENTITY)
        registers.append(Register(name, addr, access, text, fields))
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


_BEHAVIOUR = {
    "ID": f"sw = r; hw = na; reset = 32'h{IDENTITY:08x};",
    "CONTROL": "sw = w; hw = r; singlepulse; reset = 0;",
    "PC": "sw = rw; hw = r; reset = 0;",
    "PROGRAM_ADDR": "sw = w; hw = rw;",
    "INTERRUPT": "sw = rw; woclr; hw = w; hwset; reset = 0;",
    "INTERRUPT_ENABLE": "sw = rw; hw = r; reset = 0;",
}
"""SystemRDL properties of registers: how software and circuit act on their fields."""

_BY_ACCESS = {"read": "sw = r; hw = w;", "write": "sw = w; hw = r;"}
"""SystemRDL properties of all other registers; the circuit may change read values at any time."""

MAX_PROGRAM_DEPTH = 1 << 16
"""Most words of program memory."""


def value_width(register: Register, program_depth: int) -> int:
    """Return the number of bits of the value in a register that is not divided into fields.

    The value is in the register's low bits; the other bits read as 0. ``program_depth`` is the
    number of words of the program memory. The registers PC and PROGRAM_ADDR have as many bits as
    an address of this memory.
    """
    if register.name in ("PC", "PROGRAM_ADDR"):
        return (program_depth - 1).bit_length()
    if register.name.endswith("_HIGH"):
        return COUNTER_WIDTH - 32
    return IMMEDIATE_WIDTH if 16 < register.addr < 16 + REGISTERS else 32


def systemrdl(program_depth: int = MAX_PROGRAM_DEPTH) -> str:
    """Return one text in SystemRDL that describes all registers, with their byte addresses.

    A register without fields gets one field ``VALUE`` over its whole width. Fields that hold
    program addresses have the width that a program memory of ``program_depth`` words needs.
    """

    def whole(register: Register) -> Field:
        return Field("VALUE", 0, value_width(register, program_depth), register.meaning)

    return rendered(
        Path(__file__).with_suffix(".rdl"),
        NAME=NAME,
        registers=REGISTER_MAP.values(),
        whole=whole,
        behaviour=lambda register: _BEHAVIOUR.get(register.name) or _BY_ACCESS[register.access],
        text=lambda meaning: meaning.replace("\\", "\\\\").replace('"', '\\"'),
    )
