"""The steps of the ATTENTION expander: a program for the small machine of ``attention``."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from arch.isa import DEFINITIONS, Opcode


class Op(enum.IntEnum):
    """The operation of a step on the sum register and register r."""

    LOAD = 0
    """sum = r"""
    ADD = 1
    """sum += r"""
    SUB = 2
    """sum -= r"""
    ADD_ODD = 3
    """sum += r, in the commands of an odd block"""
    ADD_CONSTANT = 4
    """sum += the signed number in place of r"""
    MULTIPLY = 5
    """sum = r times the lowest 16 bits of sum, unsigned; up to 18 cycles"""
    MIN = 6
    """sum = the smaller of sum and r, signed"""
    MAX = 7
    """sum = the larger of sum and r, signed"""
    STORE = 8
    """r = sum"""
    SEND = 9
    """send r as an operand"""
    SEND_LAST = 10
    """send r as the last operand"""
    HEADER = 11
    """send the header whose number is in place of r"""
    JUMP = 12
    """go on at the target if the condition in place of r holds"""
    EXHAUST = 13
    """there is no further block"""
    ROTATE = 14
    """the newest block becomes the middle one, that the oldest"""
    DONE = 15
    """wait for the next ATTENTION"""


class Condition(enum.IntEnum):
    """The condition of a jump."""

    NOT_ZERO = 0
    """sum is not 0; the step before is a STORE"""
    NO_NEWEST = 1
    NO_MIDDLE = 2
    NO_OLDEST = 3
    MIDDLE = 4
    """there is a middle block"""
    BLOCKS = 5
    """there is a newest, a middle or an oldest block"""


class Header(enum.IntEnum):
    """The commands of a block."""

    SCORES = 0
    DRAIN = 1
    WEIGHTS = 2
    VALUES = 3
    OUTPUT = 4


OPERANDS = DEFINITIONS[Opcode.ATTENTION].operands
_OWN = (
    *("zero", "q_now", "o_now", "row_now", "start_now", "limit_now", "left", "group_left"),
    *("q_step", "o_step", "start_change", "limit_change", "weights_params", "output_params"),
    *("lowest", "highest", "k_now"),
)
ZERO = len(OPERANDS) + _OWN.index("zero")
"""The register that is 0."""
_FIELDS = ("rows", "keys", "p", "acc", "v_acc", "v", "start", "limit", "row", "o")
RECORDS = 4
"""Blocks whose numbers are kept; three are in use."""
RECORD_WIDTH = (len(_FIELDS) - 1).bit_length()
GLOBAL_WIDTH = (len(OPERANDS) + len(_OWN) - 1).bit_length()
NEWEST, MIDDLE, OLDEST = 1, 2, 3
"""The block whose numbers a step uses; 0 is none."""


@dataclass(frozen=True)
class Step:
    """One step; ``place`` is a register, a constant, a header or a condition."""

    op: Op
    block: int = 0
    place: int = 0
    target: int = 0


@dataclass
class _Program:
    """Steps in order, with names for places to jump to."""

    steps: list[tuple[Op, int, int, str]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def label(self, name: str) -> None:
        self.labels[name] = len(self.steps)

    def do(self, op: Op, name: str = "zero") -> None:
        """Add a step with a register: ``name``, or ``block.name`` of a block's."""
        block, _, entry = name.rpartition(".")
        if block:
            index = {"newest": NEWEST, "middle": MIDDLE, "oldest": OLDEST}[block]
            self.steps.append((op, index, _FIELDS.index(entry), ""))
        else:
            self.steps.append((op, 0, (*OPERANDS, *_OWN).index(entry), ""))

    def sum(self, target: str, first: str, *others: tuple[Op, str | int]) -> None:
        """Compute a register from the first and operations on it."""
        self.do(Op.LOAD, first)
        for op, operand in others:
            if isinstance(operand, int):
                self.steps.append((op, 0, operand, ""))
            else:
                self.do(op, operand)
        self.do(Op.STORE, target)

    def jump(self, condition: Condition, label: str) -> None:
        assert condition != Condition.NOT_ZERO or self.steps[-1][0] == Op.STORE
        self.steps.append((Op.JUMP, 0, condition, label))

    def send(self, header: Header, opcode: Opcode, values: Mapping[str, str]) -> None:
        """Send a command; operands that have no value are 0."""
        self.steps.append((Op.HEADER, 0, header, ""))
        names = DEFINITIONS[opcode].operands
        for name in names:
            op = Op.SEND_LAST if name == names[-1] else Op.SEND
            self.do(op, values.get(name, "zero"))

    def resolved(self) -> list[Step]:
        return [
            Step(op, block, place, self.labels[label] if label else 0)
            for op, block, place, label in self.steps
        ]


def steps() -> list[Step]:
    """Return the steps that expand one ATTENTION as ``arch.attention`` does."""
    program = _Program()
    program.sum("group_left", "group")
    _begin_head(program)
    program.label("block")
    program.jump(Condition.NO_NEWEST, "middle")
    _cut(program)
    _send_scores(program)
    # The array has work from here on: what it does not need at first is computed only now.
    program.jump(Condition.MIDDLE, "place")
    _multiply(program)
    program.label("place")
    _place(program)
    _advance(program)
    program.label("middle")
    program.jump(Condition.NO_MIDDLE, "oldest")
    _send_weights(program)
    program.label("oldest")
    program.jump(Condition.NO_OLDEST, "values")
    _send_output(program)
    program.label("values")
    program.jump(Condition.NO_MIDDLE, "rotate")
    _send_values(program)
    program.label("rotate")
    program.do(Op.ROTATE)
    program.jump(Condition.BLOCKS, "block")
    program.do(Op.DONE)
    return program.resolved()


def _multiply(program: _Program) -> None:
    """Compute what does not change from block to block."""
    for name, step in (
        ("q_step", "q_stride"),
        ("o_step", "o_stride"),
        ("start_change", "start_step"),
        ("limit_change", "limit_step"),
    ):
        program.sum(name, "height", (Op.MULTIPLY, step))
    program.sum("weights_params", "params", (Op.ADD_CONSTANT, 1))
    program.sum("output_params", "params", (Op.ADD_CONSTANT, 2))


def _begin_head(program: _Program) -> None:
    for name in ("q_addr", "o_addr", "row", "start", "limit"):
        program.sum(f"{name.removesuffix('_addr')}_now", name)
    program.sum("left", "m")


def _cut(program: _Program) -> None:
    """Find the block's rows, and the keys that they may see."""
    program.sum("newest.rows", "height", (Op.MIN, "left"))
    program.sum(
        "lowest",
        "newest.rows",
        (Op.ADD_CONSTANT, -1),
        (Op.MULTIPLY, "start_step"),
        (Op.ADD, "start_now"),
        (Op.MIN, "start_now"),
        (Op.MAX, "zero"),
    )
    program.sum("lowest", "n", (Op.ADD_CONSTANT, -1), (Op.MIN, "lowest"))
    program.sum(
        "highest",
        "newest.rows",
        (Op.ADD_CONSTANT, -1),
        (Op.MULTIPLY, "limit_step"),
        (Op.ADD, "limit_now"),
        (Op.MAX, "limit_now"),
        (Op.MIN, "n"),
    )
    program.sum(
        "newest.keys", "lowest", (Op.ADD_CONSTANT, 1), (Op.MAX, "highest"), (Op.SUB, "lowest")
    )


def _place(program: _Program) -> None:
    """Find where else the block's operands and results are."""
    program.sum("newest.v", "lowest", (Op.MULTIPLY, "v_stride"), (Op.ADD, "v_addr"))
    program.sum("newest.start", "start_now", (Op.SUB, "lowest"))
    program.sum("newest.limit", "limit_now", (Op.SUB, "lowest"))
    program.sum("newest.p", "p_addr", (Op.ADD_ODD, "p_buffer"))
    program.sum("newest.v_acc", "v_acc_addr", (Op.ADD_ODD, "acc_buffer"))
    program.sum("newest.row", "row_now")
    program.sum("newest.o", "o_now")


def _advance(program: _Program) -> None:
    """Go to the next block of the head, or to the next head."""
    for name, step in (
        ("q_now", "q_step"),
        ("o_now", "o_step"),
        ("row_now", "newest.rows"),
        ("start_now", "start_change"),
        ("limit_now", "limit_change"),
    ):
        program.sum(name, name, (Op.ADD, step))
    program.sum("left", "left", (Op.SUB, "newest.rows"))
    program.jump(Condition.NOT_ZERO, "middle")
    program.sum("q_addr", "q_addr", (Op.ADD, "q_head"))
    program.sum("o_addr", "o_addr", (Op.ADD, "o_head"))
    program.sum("row", "row", (Op.ADD, "row_head"))
    _begin_head(program)
    program.sum("group_left", "group_left", (Op.ADD_CONSTANT, -1))
    program.jump(Condition.NOT_ZERO, "heads")
    program.sum("k_addr", "k_addr", (Op.ADD, "k_head"))
    program.sum("v_addr", "v_addr", (Op.ADD, "v_head"))
    program.sum("group_left", "group")
    program.label("heads")
    program.sum("heads", "heads", (Op.ADD_CONSTANT, -1))
    program.jump(Condition.NOT_ZERO, "middle")
    program.do(Op.EXHAUST)


def _send_scores(program: _Program) -> None:
    program.sum("k_now", "lowest", (Op.MULTIPLY, "k_stride"), (Op.ADD, "k_addr"))
    program.sum("newest.acc", "acc_addr", (Op.ADD_ODD, "acc_buffer"))
    program.send(
        Header.SCORES,
        Opcode.MATMUL,
        {
            "a_addr": "q_now",
            "a_stride": "q_stride",
            "a_zero": "q_zero",
            "b_addr": "k_now",
            "b_stride": "k_stride",
            "b_zero": "k_zero",
            "acc_addr": "newest.acc",
            "acc_stride": "newest.rows",
            "m": "newest.rows",
            "k": "k",
            "n": "newest.keys",
        },
    )


def _send_weights(program: _Program) -> None:
    program.send(
        Header.DRAIN,
        Opcode.DRAIN,
        {
            "acc_addr": "middle.acc",
            "acc_stride": "middle.rows",
            "o_addr": "middle.p",
            "o_stride": "p_stride",
            "m": "middle.rows",
            "n": "middle.keys",
            "params": "params",
        },
    )
    program.send(
        Header.WEIGHTS,
        Opcode.SOFTMAX,
        {
            "i_addr": "middle.p",
            "i_stride": "p_stride",
            "o_addr": "middle.p",
            "o_stride": "p_stride",
            "o_zero": "p_zero",
            "m": "middle.rows",
            "n": "middle.keys",
            "params": "weights_params",
            "row": "middle.row",
            "start": "middle.start",
            "start_step": "start_step",
            "limit": "middle.limit",
            "limit_step": "limit_step",
        },
    )


def _send_values(program: _Program) -> None:
    program.send(
        Header.VALUES,
        Opcode.MATMUL,
        {
            "a_addr": "middle.p",
            "a_stride": "p_stride",
            "a_zero": "p_zero",
            "b_addr": "middle.v",
            "b_stride": "v_stride",
            "b_zero": "v_zero",
            "acc_addr": "middle.v_acc",
            "acc_stride": "middle.rows",
            "m": "middle.rows",
            "k": "middle.keys",
            "n": "k",
        },
    )


def _send_output(program: _Program) -> None:
    program.send(
        Header.OUTPUT,
        Opcode.DRAIN,
        {
            "acc_addr": "oldest.v_acc",
            "acc_stride": "oldest.rows",
            "r_addr": "oldest.o",
            "r_stride": "o_stride",
            "o_addr": "oldest.o",
            "o_stride": "o_stride",
            "o_zero": "o_zero",
            "m": "oldest.rows",
            "n": "k",
            "params": "output_params",
            "row": "oldest.row",
        },
    )
