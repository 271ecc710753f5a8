"""Operands of steps that the checker of programs refuses, each by name and value."""

import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack
from celosia.sim.checker import check
from tests.test_sim_checker import CONFIG, errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LOAD m=1 row_bytes=8", "Program runs past its last word, to word 7"),
        ("LOOP count=0", "LOOP at word 0 must run 1 to 65535 times, not 0"),
        ("ENDLOOP", "ENDLOOP at word 0 ends no loop"),
        ("LOOP count=1\n" * 5, "LOOP at word 8 nests deeper than 4 levels"),
        ("SET register=0", "SET at word 0 must write a register from 1 to 15, not 0"),
        ("LOAD m=0 row_bytes=8", "LOAD at word 0 needs m from 1 to 65535, not 0"),
        (
            "NORM m=1 n=4 o_zero=128",
            "NORM at word 0 needs o_zero from -128 to 127, not 128",
        ),
        (
            "LOAD m=1 row_bytes=8 dram_addr=4",
            "LOAD at word 0 reads external rows that do not start at multiples of 8",
        ),
        (
            "LOAD m=1 row_bytes=8 sp_addr=32764",
            "LOAD at word 0 writes a scratchpad row that crosses a bank of 16384 bytes",
        ),
        (
            "LOAD m=2 row_bytes=8 sp_addr=65528 sp_stride=8",
            "LOAD at word 0 writes sp from 65528 to 65543, but it has 65536",
        ),
        (
            "MATMUL m=1 k=4096 n=1",
            "MATMUL at word 0 sums k = 4096 products, but max_k is 2048",
        ),
        (
            "DRAIN m=1 n=1 per_tensor wide_out table",
            "DRAIN at word 0 cannot look up a table with a 16-bit output",
        ),
        (
            "MAP m=1 n=1 per_tensor add",
            "MAP at word 0 can add a residual only with a 16-bit output",
        ),
        (
            "PRELOAD k=1 n=1 slot=2 line=8 append",
            "PRELOAD at word 0 needs line from 0 to rows - 1 = 7, not 8",
        ),
        (
            "PRELOAD k=1 n=1 slot=2 line=-1 append b_transpose",
            "PRELOAD at word 0 needs line from 0 to cols - 1 = 7, not -1",
        ),
        (
            "PRELOAD k=1 n=9 slot=2 append",
            "PRELOAD at word 0 appends rows of n = 9, but a tile has cols = 8",
        ),
        (
            "PRELOAD k=1 n=1 slot=1 append",
            "PRELOAD at word 0 needs a slot from 2 on, not 1: those before are for streamed "
            "weights",
        ),
        (
            "PRELOAD k=2 n=1 slot=2 line=7 append",
            "PRELOAD at word 0 writes slots from 2 to 3, but it has 2",
        ),
        (
            "PRELOAD k=9 n=3 slot=2 line=6 append b_transpose",
            "PRELOAD at word 0 writes slots from 2 to 5, but it has 2",
        ),
        *(
            (
                f"DRAIN m=1 n=2 table=2 per_tensor rotate {flag}",
                f"DRAIN at word 0 rotates pairs of columns, which excludes {flag.split()[0]}",
            )
            for flag in ("relu", "table", "add wide_out")
        ),
        (
            "DRAIN m=1 n=3 table=2 rotate",
            "DRAIN at word 0 rotates pairs of columns, so n must be even, not 3",
        ),
        *(
            (
                f"DRAIN m=1 n=2 table={period} rotate",
                "DRAIN at word 0 rotates the columns of heads, so table must be even and from 2 to "
                f"8190, not {period}",
            )
            for period in (0, 3, 8192, -2)
        ),
        (
            "DRAIN m=1 n=2 table=2 o_zero=1 rotate",
            "DRAIN at word 0 rotates about 0, so o_zero must be 0, not 1",
        ),
        (
            "DRAIN m=1 n=24 table=6 r_addr=65522 rotate per_tensor",
            "DRAIN at word 0 reads sp from 65522 to 65545, but it has 65536",
        ),
        (
            "NORM m=1 n=17 pre=3 drain",
            "NORM at word 0 requantizes accumulators with words 3 to 5, but pre_depth is 5",
        ),
        (
            "SOFTMAX m=1 n=1 params=5 drain",
            "SOFTMAX at word 0 requantizes accumulators with words 5 to 5, but pre_depth is 5",
        ),
        (
            "SOFTMAX m=1 n=1 followed",
            "SOFTMAX at word 0 is followed, which needs drain and excludes diagonal",
        ),
        (
            "DRAIN m=1 n=1 argmax wide_out followed",
            "DRAIN at word 0 is followed, which excludes argmax",
        ),
        (
            "DRAIN m=2 n=9 per_row",
            "DRAIN at word 0 takes one parameter word for each row, so it needs per_tensor or n "
            "of at most lanes = 8, not 9",
        ),
        (
            "DRAIN m=2 n=8 params=255 per_row",
            "DRAIN at word 0 reads params from 255 to 256, but it has 256",
        ),
        *(
            (
                f"DRAIN m=1 n=2 per_tensor times {flag}",
                f"DRAIN at word 0 multiplies by a second input, which excludes {flag.split()[0]}",
            )
            for flag in ("relu", "table", "add wide_out")
        ),
        (
            "DRAIN m=1 n=2 table=2 times rotate",
            "DRAIN at word 0 multiplies by a second input, which excludes rotate",
        ),
        (
            "DRAIN m=1 n=2 table=128 times",
            "DRAIN at word 0 multiplies by a second input whose zero point is table, which must be "
            "from -128 to 127, not 128",
        ),
        (
            "DRAIN m=1 n=2 o_zero=1 times",
            "DRAIN at word 0 multiplies, so o_zero must be 0, not 1",
        ),
        *(
            (
                f"DRAIN m=1 n=2 table=2 per_tensor argmax {flag}",
                f"DRAIN at word 0 looks for the largest element, which excludes {flag}",
            )
            for flag in ("table", "rotate", "times")
        ),
        (
            "DRAIN m=2 n=2 argmax",
            "DRAIN at word 0 looks for the largest element of one row, so m must be 1, not 2",
        ),
        *(
            (
                f"DRAIN m=1 n=2 polynomial {flag}",
                f"DRAIN at word 0 takes polynomials of 16-bit operands, excluding {flag}",
            )
            for flag in ("wide_out", "table", "argmax", "rotate", "times")
        ),
        *(
            (
                f"DRAIN m=1 n=2 table={first} argmax",
                "DRAIN at word 0 numbers its columns from table on, which must be from 0 to "
                f"16777214, not {first}",
            )
            for first in (-1, 16777215)
        ),
    ],
)
def test_steps_refused(text, message):
    units = {"rotary": True, "argmax": True, "wide_functions": True}
    assert errors(text, CONFIG.replace(pre_depth=5, **units)) == message


def test_a_softmax_of_more_columns_than_a_word_has_needs_the_same_for_all():
    config = CONFIG.replace(lanes=2, cols=4, softmax_lanes=4)
    assert errors("SOFTMAX m=1 n=1", config) == (
        "SOFTMAX at word 0 needs per_tensor, as it has one parameter word for softmax_lanes = 4 "
        "columns of a beat, and a word is of lanes = 2"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NORM m=1 n=1", "NORM at word 0 needs rms and factors, as row_factors is 2"),
        ("NORM m=1 n=1 factors", "NORM at word 0 needs rms and factors, as row_factors is 2"),
        *(
            (
                f"SOFTMAX m=1 n=1 {flags}",
                "SOFTMAX at word 0 needs factors and excludes diagonal, as row_factors is 2",
            )
            for flags in ("", "factors diagonal")
        ),
        ("DRAIN m=1 n=1 by_tile", "DRAIN at word 0 has by_tile, which needs factors"),
        (
            f"DRAIN m=1 n={2 * CONFIG.array.cols + 1} by_tile factors",
            "DRAIN at word 0 reads factors from 0 to 2, but it has 2",
        ),
        (
            "NORM m=2 n=1 params=65536 rms factors",
            "NORM at word 0 writes factors from 1 to 2, but it has 2",
        ),
        (
            "DRAIN m=1 n=1 params=131072 factors",
            "DRAIN at word 0 reads factors from 2 to 2, but it has 2",
        ),
    ],
)
def test_factors_of_rows_are_kept_where_a_machine_has_them(text, message):
    assert errors(text, CONFIG.replace(multiplier_width=16, row_factors=2)) == message


def test_spaced_tile_columns_are_whole_ones_of_one_row():
    config, cols = CONFIG.replace(fused=True), CONFIG.array.cols
    for m, n in ((2, cols), (1, cols + 1)):
        assert errors(f"DRAIN m={m} n={n} o_stride={cols} spaced", config) == (
            f"DRAIN at word 0 is spaced, so m must be 1 and n a multiple of {cols}, not {m} and {n}"
        )


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("softmax", "SOFTMAX m=1 n=1"),
        ("norm", "NORM m=1 n=1"),
        ("fused", "SOFTMAX m=1 n=1 drain"),
        ("fused", "NORM m=1 n=1 drain"),
        ("activation", "DRAIN m=1 n=1 table"),
        ("wide_functions", "DRAIN m=1 n=1 polynomial"),
        ("rotary", "DRAIN m=1 n=2 table=2 rotate"),
        ("rotary", "DRAIN m=1 n=1 times"),
        ("argmax", "DRAIN m=1 n=1 argmax"),
        ("b_transpose", "MATMUL m=1 k=1 n=1 b_transpose"),
        ("wide_operands", "MATMUL m=1 k=1 n=1 a_wide"),
    ],
)
def test_absent_units_are_named(unit, text):
    opcode = text.split()[0]
    assert errors(text, CONFIG.replace(**{unit: False})) == (
        f"{opcode} at word 0 needs the unit {unit}, which the configuration leaves out"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("b_low", "takes a byte of weights, which needs a_wide"),
        ("a_wide b_low b_high", "takes the high byte of weights, which excludes b_low"),
        *(
            (
                f"{others} a_wide b_high",
                "takes a byte of weights, which excludes resident and weight formats",
            )
            for others in ("slot=2 resident", "format_1")
        ),
        ("a_zero=1 a_wide", "has operands of INT16, so a_zero must be 0, not 1"),
        ("b_zero=-1 a_wide b_high", "has operands of INT16, so b_zero must be 0, not -1"),
    ],
)
def test_bytes_of_operands_have_their_rules(flags, message):
    config = CONFIG.replace(wide_operands=True, weight_formats="int4", weight_depth=4)
    refusal = errors(f"MATMUL m=1 k=1 n=1 {flags}", config)
    assert refusal == f"MATMUL at word 0 {message}"


def test_zero_points_need_their_field():
    config = CONFIG.replace(zero_points=False)
    assert errors("MATMUL m=1 k=1 n=1 a_zero=3", config) == (
        "MATMUL at word 0 has a_zero 3, but zero_points is false"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LOAD m=1 row_bytes=8 sp_addr=2", "LOAD at word 0 writes scratchpad rows"),
        ("LOAD m=2 row_bytes=8 sp_stride=10", "LOAD at word 0 writes scratchpad rows"),
        ("MATMUL a_addr=6 m=1 k=8 n=8", "MATMUL at word 0 reads scratchpad rows"),
        ("TABLE i_addr=1", "TABLE at word 0 reads scratchpad rows"),
    ],
)
def test_rows_begin_where_the_scratchpad_is_addressed(text, message):
    aligned = CONFIG.replace(scratchpad_align=4)
    expected = f"{message} that do not start at multiples of 4"
    assert errors(f"{text}\nHALT", aligned) == expected
    assert check(pack(assemble(f"{text}\nHALT")), CONFIG) == 1


def test_one_row_has_no_stride_to_keep():
    aligned = CONFIG.replace(scratchpad_align=4)
    assert check(pack(assemble("LOAD m=1 row_bytes=7 sp_stride=7\nHALT")), aligned) == 1


def test_pairs_of_heads_begin_again_where_the_scratchpad_is_addressed():
    aligned = CONFIG.replace(scratchpad_align=8, rotary=True)
    turned = "DRAIN m=1 n=8 r_addr=128 table={} rotate wide_out\nHALT"
    assert check(pack(assemble(turned.format(4))), aligned) == 1
    assert "must be a multiple of half of scratchpad_align = 8, not 6" in errors(
        turned.format(6), aligned
    )
