"""Limits of a microcoded machine's configuration."""

from collections.abc import Mapping
from typing import Any

from celosia.arch.errors import InputError
from celosia.arch.fields import Fields

CONSTANTS: Mapping[str, Any] = {
    "array": "systolic",
    "multiplier": "single",
    "packed_slots": False,
    "packed_cache": False,
    "low_rows": 0,
    "pre_depth": 0,
    "softmax_lanes": 0,
    "row_factors": 0,
    "multiplier_width": 32,
    "bias_width": 32,
    "block_exponents": False,
    "weight_depth": 2,
    "lanes": 1,
    "scratchpad_banks": 1,
    "registered": False,
    "queue_depth": 2,
    "zero_points": False,
    "gating": "none",
    "sparse_lanes": 0,
    "sparse_depth": 1024,
    "wide_operands": False,
    "wide_functions": False,
    "rotary": False,
    "argmax": False,
    "fused": False,
    "weight_formats": "",
    "weight_group": 0,
    "throttle": 0,
    "protect": "none",
    "counters": False,
}
"""Fixed values of the fields, by short names, that a microcoded machine cannot choose: it has no
engines and no queues, one lane and one bank."""

MAX_MEM_WIDTH = 32
"""Widest word of external memory (bits)."""

MAX_WORDS = 8000
"""Most words of the data memory that depend on the configuration, which immediates can address."""

MAX_ROW = 1 << 12
"""Longest row whose normalized values, of at most 64, the microcode computes (elements)."""


def check_micro(config: Fields, values: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` if a configuration is not valid for a microcoded machine.

    ``values`` maps short names of fields to values. Fields in :data:`CONSTANTS` must have the
    values there. External memory's width, the longest row and the data memory have limits.
    """
    for name, constant in CONSTANTS.items():
        if values[name] != constant:
            shown, asked = (str(value).lower() for value in (constant, values[name]))
            raise InputError(f"Field {name} of a microcoded machine is {shown}, not {asked}")
    if config.memory.width > MAX_MEM_WIDTH:
        raise InputError(
            f"Field mem_width of a microcoded machine must be at most {MAX_MEM_WIDTH}, "
            f"not {config.memory.width}"
        )
    if config.vector.longest_row > MAX_ROW:
        raise InputError(
            f"Field max_row of a microcoded machine must be at most {MAX_ROW}, "
            f"not {config.vector.longest_row}"
        )
    words = config.control.program_depth + config.vector.longest_row + 64 * config.table_slots
    if words > MAX_WORDS:
        raise InputError(
            f"Fields program_depth + max_row + 64 * table_slots of a microcoded machine must "
            f"be at most {MAX_WORDS}, not {words}"
        )
