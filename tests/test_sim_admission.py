"""Limits of steps at both sides: sizes, masks, slots, parameters, and flags with their units."""

import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.sim.checker import check
from tests.test_sim_checker import CONFIG, errors
from tests.test_sim_slots import CONFIG as PAIRED

FUSED = CONFIG.replace(fused=True)


def passes(text: str, config=CONFIG) -> bool:
    """Return whether a program of one step passes the checker."""
    return check(pack(assemble(f"{text}\nHALT")), config) == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("LOAD m=1 row_bytes=8", ["m", "row_bytes"]),
        ("STORE m=1 row_bytes=8", ["m", "row_bytes"]),
        ("MATMUL m=1 k=1 n=1", ["m", "k", "n"]),
        ("PRELOAD k=1 n=1 slot=2", ["k", "n"]),
        ("SPARSE m=1 k=16 n=1 beats=1", ["m", "k", "n", "beats"]),
        ("PARAMS n=1", ["n"]),
        ("MAP m=1 n=1", ["m", "n"]),
    ],
)
def test_sizes_are_from_1_to_65535(text: str, names: list[str]) -> None:
    config = CONFIG.replace(sparse_lanes=4, weight_depth=4)
    assert passes(text, config)
    for name in names:
        for size in (0, 1 << 16, -1):
            changed = " ".join(
                f"{name}={size}" if word.startswith(f"{name}=") else word for word in text.split()
            )
            assert errors(changed, config) == (
                f"{text.split()[0]} at word 0 needs {name} from 1 to 65535, not {size}"
            )


@pytest.mark.parametrize("name", ["start", "limit"])
def test_a_mask_stays_in_the_range_of_its_counters(name: str) -> None:
    bound = 1 << 17
    for first, step, rows in ((bound - 1, 0, 1), (-bound, 0, 1), (1, bound - 2, 2), (-2, -1, 9)):
        assert passes(f"SOFTMAX m={rows} n=1 {name}={first} {name}_step={step}")
    for first, step, rows, column in (
        (bound, 0, 1, bound),
        (-bound - 1, 0, 1, -bound - 1),
        (0, bound, 1, bound),
        (2, bound - 2, 2, bound),
        (-bound, -1, 2, -bound - 1),
    ):
        assert errors(f"SOFTMAX m={rows} n=1 {name}={first} {name}_step={step}") == (
            f"SOFTMAX at word 0 moves {name} to {column}, outside +-{bound}"
        )
    assert passes(f"SOFTMAX m=1 n=1 diagonal={-bound}")
    for column in (bound, -bound - 1):
        assert errors(f"SOFTMAX m=1 n=1 diagonal={column}") == (
            f"SOFTMAX at word 0 has its diagonal at {column}, outside +-{bound}"
        )


@pytest.mark.parametrize(
    ("unit", "text", "config"),
    [
        ("fused", "DRAIN m=1 n=1 followed", CONFIG.replace(fused=False)),
        ("fused", "DRAIN m=1 n=8 o_stride=8 spaced", CONFIG.replace(fused=False)),
        ("row_factors", "DRAIN m=1 n=1 factors", CONFIG),
        ("row_factors", "DRAIN m=1 n=1 by_tile", CONFIG),
        ("packed_cache", "PRELOAD k=4 n=4 slot=2 append pair", CONFIG),
        ("low_rows", "PRELOAD k=4 n=4 slot=2 append lower", CONFIG),
        ("block_exponents", "PRELOAD k=4 n=4 slot=2 append block", CONFIG),
    ],
)
def test_flags_name_their_absent_units(unit: str, text: str, config) -> None:
    assert errors(text, config) == (
        f"{text.split()[0]} at word 0 needs the unit {unit}, which the configuration leaves out"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PRELOAD k=4 n=4 slot=2 pair", "has pair, which needs append"),
        ("MATMUL m=1 k=4 n=4 pair", "has pair, which needs resident"),
        ("MATMUL m=1 k=4 n=4 slot=2 resident second", "has second, which needs pair"),
        ("MATMUL m=1 k=4 n=4 slot=2 resident lower", "has lower, which needs pair"),
        ("PRELOAD k=4 n=4 slot=2 append b_transpose block", "has block, which needs pair"),
        (
            "PRELOAD k=4 n=4 slot=2 append b_transpose pair block",
            "has block, which excludes b_transpose",
        ),
        ("PRELOAD k=4 n=4 slot=2 append pair lower block", "has block, which excludes lower"),
        *(
            (
                f"PRELOAD k={k} n=2 b_stride=16 slot=2 append b_transpose pair lower",
                f"has lower, which needs k from low_rows = 3 to the 4 rows above them, not {k}",
            )
            for k in (2, 6)
        ),
        (
            "PRELOAD k=3 n=2 b_stride=8 slot=2 append b_transpose pair",
            "has pair, so k must be a multiple of scratchpad_align = 2, not 3",
        ),
        (
            "PRELOAD k=2 n=3 b_stride=8 slot=2 append pair",
            "has pair, so n must be a multiple of scratchpad_align = 2, not 3",
        ),
        (
            "MATMUL m=1 k=4 n=4 slot=1 resident",
            "needs a slot from 2 on, not 1: those before are for streamed weights",
        ),
        (
            "PRELOAD k=2 n=2 b_addr=65534 b_stride=4 slot=2 append pair",
            "reads sp from 65534 to 65541, but it has 65536",
        ),
        (
            "PRELOAD k=2 n=2 b_addr=65530 b_stride=4 slot=2 append b_transpose pair",
            "reads sp from 65530 to 65537, but it has 65536",
        ),
    ],
)
def test_pairs_of_tiles_have_their_rules(text: str, message: str) -> None:
    config = PAIRED.replace(rows=8, scratchpad_align=2, scratchpad_bytes=65536)
    assert errors(text, config) == f"{text.split()[0]} at word 0 {message}"


def test_pairs_of_weights_take_half_of_the_slots() -> None:
    config = PAIRED.replace(
        weight_formats="int4", packed_slots=True, weight_depth=6, packed_cache=False, low_rows=0
    )
    for k, slots in ((7, 1), (42, 3), (43, 4)):
        product = f"MATMUL m=1 k={k} n=1 slot={{}} resident format_1"
        assert passes(product.format(6 - slots), config)
        assert errors(product.format(7 - slots), config) == (
            f"MATMUL at word 0 reads slots from {7 - slots} to 6, but it has 6"
        )


def test_a_format_excludes_what_its_codes_have_no_place_for() -> None:
    config = CONFIG.replace(weight_formats="int4", weight_depth=4, weight_group=8)
    assert passes("MATMUL m=1 k=8 n=8 format_1", config)
    for flag, more in (("b_transpose", ""), ("resident", "slot=2")):
        for form in ("format_1", "format_1 grouped"):
            assert errors(f"MATMUL m=1 k=8 n=8 {more} {form} {flag}", config) == (
                f"MATMUL at word 0 has weights of a format, which excludes {flag}"
            )
    assert errors("PRELOAD k=8 n=8 slot=2 format_1 append", config) == (
        "PRELOAD at word 0 has weights of a format, which excludes append"
    )
    assert errors("MATMUL m=1 k=8 n=8 grouped", config) == (
        "MATMUL at word 0 is grouped, which needs a weight format and weight_group, which is 8"
    )
    assert errors("MATMUL m=1 k=8 n=8 format_2", config) == (
        "MATMUL at word 0 has weights of format 2, but weight_formats is 'int4'"
    )
    assert errors("MATMUL m=1 k=8 n=8 b_zero=-3 format_1", config) == (
        "MATMUL at word 0 has weights of a format, so b_zero must be 0, not -3"
    )


def test_parameters_are_counted_tile_by_tile() -> None:
    """A tile of eight columns takes two words of four, and a last tile of one column takes one."""
    config = FUSED.replace(lanes=4)
    for n, words in ((1, 1), (5, 2), (8, 2), (9, 3), (17, 5), (24, 6)):
        drain = f"DRAIN m=1 n={n} o_stride={n} acc_stride=1 params={{}}"
        assert passes(drain.format(256 - words), config)
        assert errors(drain.format(257 - words), config) == (
            f"DRAIN at word 0 reads params from {257 - words} to 256, but it has 256"
        )


def test_spaced_tile_columns_are_written_row_by_row() -> None:
    drain = "DRAIN m=1 n=24 acc_stride=1 o_addr={} o_stride=100 per_tensor spaced"
    assert passes(drain.format(65536 - 208), FUSED)
    assert errors(drain.format(65536 - 207), FUSED) == (
        "DRAIN at word 0 writes sp from 65329 to 65536, but it has 65536"
    )
