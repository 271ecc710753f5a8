"""Decoder of micro-instructions into control bits."""

from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out

from celosia.arch.micro.isa import OPERATIONS, Form
from celosia.hdl.component import Component
from celosia.hdl.micro.alu import ALU_CONTROL


class Source(enum.Enum, shape=4):
    """Source of the value that a micro-instruction writes to its destination register."""

    ALU = 0
    DATA = 1
    MICROCODE = 2
    SCRATCHPAD = 3
    LOW = 4
    MIDDLE = 5
    MEMORY = 6
    ADDRESS = 7
    SUM = 8
    SCALED = 9


def _twins(*names: str) -> tuple[str, ...]:
    """Return loads or stores together with their post-increment variants."""
    return tuple(
        operation for name in names for operation in (name, f"{name}P") if operation in OPERATIONS
    )


def _both(*names: str) -> tuple[str, ...]:
    """Return operations on two registers together with their immediate variants."""
    return tuple(
        operation for name in names for operation in (name, f"{name}I") if operation in OPERATIONS
    )


_FORMS = {
    form: tuple(name for name, operation in OPERATIONS.items() if operation.form == form)
    for form in Form
}
_STEPPING = tuple(name for name in OPERATIONS if name[-1] == "P" and name not in ("LOOP", "JUMP"))
_VALUES = ("ADD", "SUB", "AND", "OR", "MIN", "MAX", "SLT", "SLTU", "SLL", "SRL", "SRA")
_ALU = _both(*_VALUES)
_COMPARING = _both("SUB", "SLT", "SLTU", "MIN", "MAX") + tuple(
    name for name in _FORMS[Form.BRANCH] if name != "LOOP"
)
_SCALES = ("SCALE", "SCALESUM")
_OPERANDS = ("WEIGHT", "WEIGHTS", "ENTER", "ENTERS")
_STEPS = (*_STEPPING, *_OPERANDS, *_SCALES, "LOOP", "TAKES", "SUMS", "SCALEDB")
_LOADS = _twins("LB", "LH", "LHU")

_ALU_BITS = {
    "subtract": (*_COMPARING, "LOOP", "PUT"),
    "carry": _COMPARING,
    "logic_0": (*_both("OR", "MAX"), "PUT"),
    "logic_1": ("PUT",),
    "extreme": _both("MIN", "MAX"),
    "unsigned": (*_both("SLTU"), "BGEU"),
    "left": _both("SLL"),
    "arithmetic": _both("SRA"),
    "result_0": (*_both("AND", "OR", "MIN", "MAX", "SLT", "SLTU"), "PUT"),
    "result_1": _both("SLL", "SRL", "SRA", "SLT", "SLTU"),
}
_BITS = {
    "immediate": tuple(name for name in _FORMS[Form.IMMEDIATE] + _FORMS[Form.STORE]),
    "writes_first": (*_ALU, *_STEPS, "JUMP", "PUT"),
    "writes_last": (
        *_LOADS,
        *_twins("LD"),
        "LC",
        "LOW",
        "MIDDLE",
        "TAKE",
        "START",
        "SUM",
        "SCALED",
    ),
    "steps": _STEPS,
    "put": ("PUT",),
    "at_a": (*_STEPPING, *_OPERANDS, *_SCALES, "TAKES", "SCALEDB"),
    "slow": (*_LOADS, *_twins("LD"), "LC"),
    "scratchpad": (*_LOADS, *_twins("SB", "SH"), *_OPERANDS, "TAKES", "SCALEDB"),
    "scratchpad_write": (*_twins("SB", "SH"), "TAKES", "SCALEDB"),
    "half": _twins("LH", "LHU", "SH"),
    "signed": _twins("LB", "LH"),
    "data": (*_twins("LD", "ST"), *_SCALES),
    "data_write": _twins("ST"),
    "sum": ("SUM",),
    "constant": ("LC",),
    "sums": ("SUMS",),
    "scale": _SCALES,
    "scale_sum": ("SCALESUM",),
    "bounds": ("BOUNDS",),
    "scaled": ("SCALED", "SCALEDB"),
    "scaled_byte": ("SCALEDB",),
    "repeat": ("REPEAT",),
    "repeated": ("ENTERS", "TAKES"),
    "weight": ("WEIGHT",),
    "weights": ("WEIGHTS",),
    "blank": ("BLANK",),
    "enter": ("ENTER",),
    "enters": ("ENTERS",),
    "branch": _FORMS[Form.BRANCH],
    "if_less": ("BLT", "BGE", "BGEU"),
    "if_not": ("BNE", "BGE", "BGEU", "LOOP"),
    "jump": ("JUMP",),
    "multiply": ("MUL",),
    "product": ("LOW", "MIDDLE"),
    "ask": ("ASK",),
    "take": ("TAKE", "TAKES"),
    "takes": ("TAKES",),
    "offer": ("OFFER",),
    "give": ("GIVE",),
    "awaits": ("AWAIT",),
    "signal": ("SIGNAL",),
    "start": ("START",),
}
_SOURCES = {
    Source.DATA: _twins("LD"),
    Source.MICROCODE: ("LC",),
    Source.SCRATCHPAD: _LOADS,
    Source.LOW: ("LOW",),
    Source.MIDDLE: ("MIDDLE",),
    Source.MEMORY: ("TAKE",),
    Source.ADDRESS: ("START", "JUMP"),
    Source.SUM: ("SUM",),
    Source.SCALED: ("SCALED",),
}

CONTROL = data.StructLayout({"alu": ALU_CONTROL, **dict.fromkeys(_BITS, 1), "source": Source})
"""Layout of the control bits of a micro-instruction; with all bits at 0 it has no effect."""


class MicroDecode(Component):
    """Decodes the number of an operation into the control bits of the core; combinational.

    ``store`` is 1 for stores and branches. In these operations the field rd has low bits of the
    immediate or of the branch target, instead of the number of a destination register.
    """

    operation: In(6)
    """The number of an operation, the lowest bits of a micro-instruction."""
    control: Out(CONTROL)
    """Control bits of the operation."""
    store: Out(1)

    def circuit(self, m):
        alu = self.control.alu
        for name, operations in _ALU_BITS.items():
            m.d.comb += getattr(alu, name).eq(self._is(operations))
        for name, operations in _BITS.items():
            m.d.comb += getattr(self.control, name).eq(self._is(operations))
        with m.Switch(self.operation):
            for source, operations in _SOURCES.items():
                with m.Case(*(OPERATIONS[name].number for name in operations)):
                    m.d.comb += self.control.source.eq(source)
        m.d.comb += self.store.eq(self._is(_FORMS[Form.STORE] + _FORMS[Form.BRANCH]))

    def _is(self, operations):
        return self.operation.matches(*(OPERATIONS[name].number for name in operations))
