"""Configurations that only tests build."""

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS

SMALLEST = Config.of(
    name="smallest",
    rows=1,
    cols=1,
    lanes=1,
    mem_width=8,
    mem_addr_width=16,
    operand_width=2,
    max_k=40,
    acc_width=12,
    scratchpad_bytes=256,
    scratchpad_banks=1,
    acc_depth=2,
    param_depth=1,
    table_slots=1,
    max_row=1,
    queue_depth=1,
)
"""One processing element, and memories as small as random programs allow."""

ODD = PRESETS["odd"].replace(
    name="odd depths",
    trace=True,
    acc_depth=83,
    param_depth=37,
    table_slots=3,
    program_depth=1017,
    queue_depth=3,
    weight_depth=5,
    max_row=77,
    mem_addr_width=15,
)
"""A machine none of whose memories has a power of two of words."""

FOR_ENCODERS = [name for name, preset in PRESETS.items() if not preset.pre_depth]
"""Presets that encoders run on; the others hold no parameters but those of decoders on the chip."""
