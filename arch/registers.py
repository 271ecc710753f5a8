"""The host's registers, defined once."""

from dataclasses import dataclass
from typing import Literal

from arch.isa import REGISTERS, Engine

IDENTITY = 0xCE105A00
"""What ID reads as; its low byte is the version of this register map."""

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


FIELDS = {
    "CONTROL": (Field("START", 0, 1, "starts a run at PC"),),
    "STATUS": (
        Field("BUSY", 0, 1, "busy"),
        Field("ILLEGAL", 1, 1, "stopped by an unknown instruction or a loop too deep"),
        Field("OVERFLOW", 2, 1, "a token count overflowed"),
        Field("MEMORY", 3, 1, "external memory failed to read or write"),
    ),
}
"""The fields of the registers that have any; those of STATUS but BUSY are errors."""


COUNTERS = {
    "CYCLES": "cycles from start until halt",
    "MACS": "useful products",
    "GATED": "zero activations that entered the array",
    "SKIPPED": "masked tiles that were neither fetched nor computed",
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
"""What the array does with a cycle, or why nothing."""

COUNTERS |= {f"ARRAY_{name}": f"cycles {meaning}" for name, meaning in ARRAY_CAUSES.items()}
COUNTERS["SPAN_MATRIX"] = (
    "cycles from the MATRIX engine's first tile until its last sum was written, pauses included"
)
COUNTERS["VECTOR_READ"] = "lines that the VECTOR engine read from the scratchpad"
COUNTERS["VECTOR_WRITTEN"] = "lines that the VECTOR engine wrote to the scratchpad"
"""The counters, all cleared at start; each is read as NAME_LOW and NAME_HIGH.

Every cycle of a run is one of each engine's BUSY, WAIT and IDLE, and one of the array's; the last
three of these are IDLE_MATRIX.
"""


def _bits(name: str) -> str:
    """Return the meaning of a register as that of its fields, of one bit each."""
    return "; ".join(f"bit {field.low} {field.meaning}" for field in FIELDS[name])


def _registers() -> list[Register]:
    entries: list[tuple[str, Access, str]] = [
        ("ID", "read", f"0x{IDENTITY:08X}"),
        ("CONTROL", "write", "writing 1 starts a run at PC"),
        ("STATUS", "read", _bits("STATUS")),
        ("PC", "read/write", "word address at which a run starts"),
        ("PROGRAM_ADDR", "write", "word address of the next PROGRAM_DATA"),
        ("PROGRAM_DATA", "write", "writes a program word and moves PROGRAM_ADDR on"),
        ("ARGMAX", "read", "column of the largest element that argmax found last"),
        ("ARGMAX_VALUE", "read", "that element, 16 bits with their sign"),
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
