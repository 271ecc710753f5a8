"""The micro-instruction set of the microcoded machine's core, defined once.

The core has 64 registers of 32 bits, of which register 0 is 0, and four memories: the scratchpad
(bytes, at any alignment), the data memory (32-bit words, ``arch.micro.memory``), its own microcode
(32-bit words, read only) and external memory behind its port. A micro-instruction is a word, least
significant bit first:

======= ===========================================================================
5:0     operation
11:6    ra
17:12   rb; in form IMMEDIATE the low 6 bits of the immediate
23:18   rd; in forms STORE and BRANCH the low 6 bits of the immediate or the target
31:24   in these three forms the high 8 bits of the immediate or the target
======= ===========================================================================

Immediates are signed, targets are addresses of micro-instructions. Every operation takes one cycle
but for the further ones that :class:`Operation` states; a taken branch takes one more.
"""

import enum
from dataclasses import dataclass

from arch.errors import ProgramError

REGISTERS = 64
"""Registers of the core."""
IMMEDIATE_WIDTH = 14
"""Width of an immediate or a target (bits)."""
MULTIPLY_CYCLES = 2
"""Cycles from a multiplication to the first in which its product can be taken."""
SCALE_CYCLES = 7
"""Cycles from the requantization of a value, which no left shift delays, to its result."""
SUM_CYCLES = 3
"""Cycles that must lie between the last element that enters the array and a row that is taken."""


class Form(enum.Enum):
    """Fields of a micro-instruction."""

    REGISTER = "rd, ra, rb"
    IMMEDIATE = "rd, ra, immediate"
    STORE = "ra, rb, immediate"
    BRANCH = "ra, rb, target"


@dataclass(frozen=True)
class Operation:
    """One operation: its number, form, meaning, and cycles after its first one."""

    number: int
    form: Form
    meaning: str
    more: int = 0


class Signal(enum.IntEnum):
    """Events that SIGNAL reports outside the core, by its immediate."""

    FAIL = 0
    """STATUS reports an unknown instruction or a loop too deep."""
    VECTOR = 1
    """An instruction of the vector engine begins: scratchpad writes are traced."""
    RETIRE = 2
    """It has completed."""


_ALU = {
    "ADD": "rd = ra + b",
    "SUB": "rd = ra - b",
    "AND": "rd = ra & b",
    "OR": "rd = ra | b",
    "MIN": "rd = min(ra, b), signed",
    "MAX": "rd = max(ra, b), signed",
    "SLT": "rd = ra < b, signed",
    "SLTU": "rd = ra < b, unsigned",
    "SLL": "rd = ra << b % 32",
    "SRL": "rd = ra >> b % 32, zeros come in",
    "SRA": "rd = ra >> b % 32, the sign comes in",
}
"""Operations on two values; b is rb, or an immediate in the twin whose name ends with I."""

_ABSENT = frozenset({"SUBI", "ORI", "MAXI", "LBU", "SB", "SH"})
"""Operations that a group has room for, but no microcode needs."""

_MOVES = {
    "LB": (Form.IMMEDIATE, "rd = scratchpad byte, signed, at ra + imm", 1),
    "LBU": (Form.IMMEDIATE, "rd = scratchpad byte at ra + imm", 1),
    "LH": (Form.IMMEDIATE, "rd = two scratchpad bytes, signed, from ra + imm on", 1),
    "LHU": (Form.IMMEDIATE, "rd = two scratchpad bytes from ra + imm on", 1),
    "LD": (Form.IMMEDIATE, "rd = data word ra + imm", 1),
    "SB": (Form.STORE, "scratchpad byte at ra + imm = rb", 0),
    "SH": (Form.STORE, "two scratchpad bytes from ra + imm on = rb", 0),
    "ST": (Form.STORE, "data word ra + imm = rb", 0),
}
"""Loads and stores; the twin whose name ends with P takes address ra, and then adds imm to ra.

Two bytes from an odd address on take one cycle more than those from an even one.
"""

_OTHERS = {
    "BEQ": (Form.BRANCH, "to target if ra == rb", 0),
    "BNE": (Form.BRANCH, "to target if ra != rb", 0),
    "BLT": (Form.BRANCH, "to target if ra < rb, signed", 0),
    "BGE": (Form.BRANCH, "to target if ra >= rb, signed", 0),
    "BGEU": (Form.BRANCH, "to target if ra >= rb, unsigned", 0),
    "LOOP": (Form.BRANCH, "ra = ra - 1, to target if it is not 0; rb is register 0", 0),
    "JUMP": (Form.IMMEDIATE, "rd = next address, to ra + imm", 1),
    "MUL": (Form.REGISTER, "begin the signed product of ra and rb, 64 bits", 0),
    "LOW": (Form.REGISTER, "rd = low half of the last product, waiting for it", 0),
    "MIDDLE": (Form.REGISTER, "rd = bits 31 to 62 of the last product, waiting for it", 0),
    "LC": (Form.IMMEDIATE, "rd = microcode word ra + imm", 2),
    "PUT": (Form.REGISTER, "the register whose number is in ra = rb", 0),
    "SIGNAL": (Form.IMMEDIATE, "tell the outside a value of Signal, the immediate", 0),
    "START": (Form.REGISTER, "not busy until the host starts a run; rd = its PC", 0),
    "WEIGHT": (
        Form.REGISTER,
        "the array's next weight = scratchpad byte at ra; ra = ra + rb; weights come row by row, "
        "in each column by column, with one 0 behind an odd number of columns",
        0,
    ),
    "BLANK": (Form.REGISTER, "the array's next weight = 0", 0),
    "ENTER": (
        Form.REGISTER,
        "the array's next activation = scratchpad byte at ra; ra = ra + rb; with its last row's, "
        "every column's sum is added to the next row of accumulators",
        0,
    ),
    "SUM": (Form.REGISTER, "rd = the next column of the accumulators' row that was taken", 0),
    "AWAIT": (Form.REGISTER, "wait until the words offered last are written", 0),
    "ASK": (
        Form.REGISTER,
        "ask external memory for rb + 1 (up to 256) words from byte address ra on",
        0,
    ),
    "TAKE": (Form.REGISTER, "rd = the next word asked for, waiting for it", 0),
    "OFFER": (
        Form.REGISTER,
        "tell external memory that rb + 1 (up to 256) words for byte address ra on follow; one "
        "AWAIT belongs to each",
        0,
    ),
    "GIVE": (Form.REGISTER, "write ra as the next of them, only the bytes of the mask rb", 0),
    "WEIGHTS": (Form.REGISTER, "WEIGHT of two bytes, from an even ra on; ra = ra + rb", 0),
    "REPEAT": (
        Form.REGISTER,
        "the next ENTERS or TAKES runs rb times; row ra of the accumulators is the next one",
        0,
    ),
    "ENTERS": (
        Form.REGISTER,
        "ENTER of two bytes, from an even ra on, into an array of two rows; ra = ra + rb; as often "
        "as the last REPEAT told",
        0,
    ),
    "SUMS": (Form.REGISTER, "take row ra of the accumulators, which becomes 0", 0),
    "TAKES": (
        Form.REGISTER,
        "two scratchpad bytes, from an even ra on, = the next word asked for, waiting for it; "
        "ra = ra + rb; as often as the last REPEAT told",
        0,
    ),
}


_OTHERS |= {
    "SCALE": (
        Form.REGISTER,
        "begin the requantization of ra by the data words rb (bias), rb + 1 (multiplier) and "
        "rb + 2 (shift); at most one other may not have been taken",
        3,
    ),
    "BOUNDS": (
        Form.REGISTER,
        "what is requantized is between the low and the high half of ra, rb its zero point",
        0,
    ),
    "SCALED": (Form.REGISTER, "rd = the oldest requantized value, waiting for it", 0),
}


_PLACES = {
    "ADD": 0,
    "ADDI": 16,
    "LB": 32,
    "BEQ": 48,
    "MUL": 56,
    "LOW": 58,
    "WEIGHT": 11,
    "ASK": 27,
    "WEIGHTS": 31,
    "REPEAT": 17,
    "ENTERS": 19,
    "SUMS": 21,
    "TAKES": 52,
    "SCALE": 34,
    "BOUNDS": 42,
    "SCALED": 44,
    "BGEU": 53,
}
"""First numbers of the groups of opcodes; a bit or two of an opcode name its group, but for the
last ones, which have the places of twins that no microcode needs."""


def _operations() -> dict[str, Operation]:
    found: list[tuple[str, Form, str, int]] = []
    found += [(name, Form.REGISTER, meaning, 0) for name, meaning in _ALU.items()]
    found += [
        (f"{name}I", Form.IMMEDIATE, meaning.replace("b", "imm", 1), 0)
        for name, meaning in _ALU.items()
    ]
    for name, (form, meaning, more) in _MOVES.items():
        found.append((name, form, meaning, more))
        stepped = meaning.replace("ra + imm", "ra") + "; ra = ra + imm"
        found.append((f"{name}P", form, stepped, more))
    found += [(name, *rest) for name, rest in _OTHERS.items()]
    operations, number = {}, 0
    for name, form, meaning, more in found:
        number = _PLACES.get(name, number)
        if name not in _ABSENT:
            operations[name] = Operation(number, form, meaning, more)
        number += 1
    return operations


OPERATIONS = _operations()
"""Every operation by name."""


def encode(name: str, *, ra: int = 0, rb: int = 0, rd: int = 0, value: int = 0) -> int:
    """Return the word of a micro-instruction; ``value`` is its immediate or target.

    Raises :class:`ProgramError` where a register or the value has no room in its field.
    """
    operation = OPERATIONS[name]
    for field, number in (("ra", ra), ("rb", rb), ("rd", rd)):
        if not 0 <= number < REGISTERS:
            raise ProgramError(f"{name} needs {field} from 0 to {REGISTERS - 1}, not {number}")
    low = 0 if operation.form == Form.BRANCH else -(1 << (IMMEDIATE_WIDTH - 1))
    if not low <= value < low + (1 << IMMEDIATE_WIDTH):
        raise ProgramError(f"{name} has no room for {value} in {IMMEDIATE_WIDTH} bits")
    value %= 1 << IMMEDIATE_WIDTH
    if operation.form == Form.IMMEDIATE:
        rb = value & 63
    elif operation.form in (Form.STORE, Form.BRANCH):
        rd = value & 63
    else:
        value = 0
    return operation.number | ra << 6 | rb << 12 | rd << 18 | value >> 6 << 24
