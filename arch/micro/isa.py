"""The micro-instruction set of the microcoded machine's core, with 64 registers of 32 bits.

Register 0 is always 0. A micro-instruction has 32 bits: the operation, the registers ra, rb and rd,
and a signed immediate or a target. The target is a micro-instruction's address. A taken branch
takes one cycle more than its operation.
"""

# Bits of a micro-instruction; its form determines which fields it has:
#   5:0     operation
#   11:6    ra
#   17:12   rb; in form IMMEDIATE the low 6 bits of the immediate
#   23:18   rd; in forms STORE and BRANCH the low 6 bits of the immediate or the target
#   31:24   in these three forms the high 8 bits of the immediate or the target
# The core has a scratchpad (bytes, at any alignment), a data memory (celosia.arch.micro.memory) and
# microcode (read only) of 32-bit words, and external memory through its port.

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celosia.arch.errors import ProgramError
from celosia.arch.tables import read_table

REGISTERS = 64
"""Registers of the core."""
IMMEDIATE_WIDTH = 14
"""Width of an immediate or a target (bits)."""
MULTIPLY_CYCLES = 2
"""Cycles from a multiplication to the first cycle in which its product can be read."""
SCALE_CYCLES = 7
"""Cycles from the start of a requantization without left shift to its result."""
SUM_CYCLES = 3
"""Cycles required between the last element that enters the array and the read of a row."""


class Form(enum.Enum):
    """Form of a micro-instruction: its operand fields in the order of assembler text."""

    REGISTER = "rd, ra, rb"
    IMMEDIATE = "rd, ra, immediate"
    STORE = "ra, rb, immediate"
    BRANCH = "ra, rb, target"


@dataclass(frozen=True)
class Operation:
    """An operation of the core.

    ``number`` is the value of the micro-instruction's operation field. ``meaning`` describes the
    operation's effect, such as "rd = ra + b", in which b is the value of register rb. ``more`` is
    the number of cycles that the operation takes after its first cycle.
    """

    number: int
    form: Form
    meaning: str
    more: int = 0
    operands: tuple[str, ...] = ()
    """Fields in written order; ``value`` is an immediate or a target."""


class Signal(enum.IntEnum):
    """Events that the micro-instruction SIGNAL reports to other units.

    The immediate of the micro-instruction is the value of the event.
    """

    FAIL = 0
    """STATUS reports an unknown instruction or too many nested loops."""
    VECTOR = 1
    """A vector engine instruction begins: scratchpad writes are traced."""
    RETIRE = 2
    """The current instruction has completed."""


def _operation(values: dict[str, Any]) -> Operation:
    form = Form[values.pop("form")]
    written = values.pop("operands", form.value).replace("immediate", "value")
    fields = written.replace("target", "value").split(", ")
    return Operation(form=form, operands=tuple(filter(None, fields)), **values)


OPERATIONS = {
    name: _operation(values)
    for name, values in read_table(Path(__file__).with_name("operations.toml")).items()
}
"""Every operation by name."""


def encode(name: str, *, ra: int = 0, rb: int = 0, rd: int = 0, value: int = 0) -> int:
    """Return the word of a micro-instruction; ``value`` is its immediate or target.

    Raises :class:`ProgramError` if a register or the value does not fit its field.
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
