"""The configuration of the microcoded machine."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

from celosia.arch.config import Config
from celosia.arch.errors import InputError


def _constant(value: Any) -> Any:
    """Return a field that a program may ask for, but nobody may set."""
    return dataclasses.field(init=False, default=value)


@dataclass(frozen=True, kw_only=True)
class MicroConfig(Config):
    """The smallest machine: one microcoded core does the work of every engine but the array's.

    It runs the programs of :class:`Config`. What this says of engines is no field here: there is
    one lane and one bank, and nothing waits in queues.

    Raises what :class:`Config` raises, and :class:`InputError` where memories are too wide or too
    deep for the core.
    """

    rows: int = 2
    cols: int = 4
    scratchpad_bytes: int = 16384
    acc_depth: int = 256
    mem_width: int = 16
    program_depth: int = 1024
    param_depth: int = 512
    max_row: int = 128
    requantizer: bool = True
    """Values are requantized by a unit of its own beside the core."""

    array: str = _constant("systolic")
    packed: bool = _constant(False)
    packed_slots: bool = _constant(False)
    packed_cache: bool = _constant(False)
    low_rows: int = _constant(0)
    pre_depth: int = _constant(0)
    softmax_lanes: int = _constant(0)
    row_factors: int = _constant(0)
    multiplier_width: int = _constant(32)
    bias_width: int = _constant(32)
    block_exponents: bool = _constant(False)
    pass_width: int = _constant(8)
    weight_depth: int = _constant(2)
    lanes: int = _constant(1)
    scratchpad_banks: int = _constant(1)
    registered: bool = _constant(False)
    queue_depth: int = _constant(2)
    zero_points: bool = _constant(False)
    operand_gating: bool = _constant(False)
    sleep: bool = _constant(False)
    sparse_lanes: int = _constant(0)
    sparse_depth: int = _constant(1024)
    wide_operands: bool = _constant(False)
    wide_functions: bool = _constant(False)
    rotary: bool = _constant(False)
    argmax: bool = _constant(False)
    fused: bool = _constant(False)
    weight_formats: str = _constant("")
    weight_group: int = _constant(0)
    throttle: int = _constant(0)
    protect: str = _constant("none")
    counters: bool = _constant(False)

    def _check_rules(self) -> None:
        super()._check_rules()
        if self.mem_width > MAX_MEM_WIDTH:
            raise InputError(
                f"Field mem_width of a microcoded machine must be at most {MAX_MEM_WIDTH}, "
                f"not {self.mem_width}"
            )
        words = self.program_depth + self.max_row + 64 * self.table_slots
        if words > MAX_WORDS:
            raise InputError(
                f"Fields program_depth + max_row + 64 * table_slots of a microcoded machine must "
                f"be at most {MAX_WORDS}, not {words}"
            )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; what is constant may be named with its value.

        Raises :class:`InputError` where a field is unknown, or is constant and another.
        """
        for field in dataclasses.fields(self):
            if field.name in changes and not field.init:
                value = changes.pop(field.name)
                if value != field.default:
                    shown, asked = (str(text).lower() for text in (field.default, value))
                    raise InputError(
                        f"Field {field.name} of a microcoded machine is {shown}, not {asked}"
                    )
        return super().replace(**changes)

    def to_toml(self) -> str:
        """Return the configuration as TOML text, which starts from this machine's preset."""
        return f'{super().to_toml()}preset = "micro"\n'


MAX_MEM_WIDTH = 32
"""Widest word of external memory (bits)."""

MAX_WORDS = 8000
"""Words that a micro-instruction's immediate reaches in the data memory, but for fixed ones."""
