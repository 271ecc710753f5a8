"""A small language model, and machines for it, of tests of its weights."""

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_description import TextDescription

LLAMA = TextDescription(
    name="llama", vocabulary=37, positions=64, dim=24, layers=2, heads=6, kv_heads=3, ffn=44
)
TEXT = PRESETS["small"].replace(
    param_depth=512,
    program_depth=8192,
    table_slots=4,
    rotary=True,
    argmax=True,
    trace=True,
    weight_formats="int4,int3,ternary,high2,mid2",
    weight_group=16,
)
RESIDENT = {"weight_depth": 1024}
PAIRED = RESIDENT | {
    "packed_slots": True,
    "array": "tree",
    "zero_points": False,
    "operand_gating": False,
    "rows": 4,
    "cols": 4,
    "lanes": 4,
}
WIDE = PRESETS["tiny"].replace(
    lanes=2,
    program_depth=8192,
    param_depth=512,
    table_slots=4,
    max_row=64,
    scratchpad_bytes=1 << 15,
    rotary=True,
    argmax=True,
    trace=True,
    wide_operands=True,
    wide_functions=True,
)
"""A machine with every unit of 16-bit operands, of which one simulation serves several tests."""
