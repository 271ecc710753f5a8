"""The proof that tokens order every hazard."""

import pytest

from arch.assembler import assemble
from arch.errors import ProgramError
from arch.instruction import pack
from arch.presets import PRESETS
from sim.checker import check
from sim.interpreter import Interpreter

CONFIG = PRESETS["small"]

GOOD = """
LOAD sp_addr=0 sp_stride=8 dram_stride=8 m=8 row_bytes=8 push=MATRIX
LOAD dram_addr=64 sp_addr=64 sp_stride=8 dram_stride=8 m=8 row_bytes=8 push=MATRIX
MATMUL a_addr=0 a_stride=8 b_addr=64 b_stride=8 m=8 k=8 n=8 pop=LOAD push=VECTOR
DRAIN m=8 n=8 o_addr=128 o_stride=8 per_tensor pop=MATRIX push=STORE
STORE dram_addr=128 dram_stride=8 sp_addr=128 sp_stride=8 m=8 row_bytes=8 pop=VECTOR
HALT
"""


def errors(text: str, config=CONFIG) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        check(pack(assemble(text)), config)
    return str(caught.value)


def test_a_race_with_the_second_load_is_found():
    assert errors(GOOD) == (
        "MATMUL at word 14 reads sp without waiting for the write of LOAD at word 7"
    )


def test_a_program_with_enough_tokens_passes():
    ordered = GOOD.replace("m=8 row_bytes=8 push=MATRIX\nLOAD", "m=8 row_bytes=8\nLOAD")
    assert check(pack(assemble(ordered)), CONFIG) == 5


def test_a_missing_token_is_found_for_each_kind_of_hazard():
    drain = "DRAIN m=1 n=1 o_addr=0 per_tensor"
    store = "STORE m=1 row_bytes=8"
    load = "LOAD m=1 row_bytes=8"
    for first, second, kind in (
        (f"{drain}", f"{store}", "reads sp without waiting for the write of DRAIN"),
        (f"{store}", f"{drain}", "writes sp without waiting for the read of STORE"),
        (f"{load}", f"{drain}", "writes sp without waiting for the write of LOAD"),
        (f"{store}", f"{load}", "reads dram without waiting for the write of STORE"),
    ):
        assert kind in errors(f"{first}\n{second}\nHALT")


def test_accumulators_are_ordered_too():
    text = "MATMUL m=1 k=1 n=1\nDRAIN m=1 n=1 o_addr=64 per_tensor\nHALT"
    assert errors(text) == (
        "DRAIN at word 13 reads acc without waiting for the write of MATMUL at word 0"
    )


@pytest.mark.parametrize(("opcode", "words"), [("SOFTMAX", 15), ("NORM", 16)])
def test_accumulators_taken_in_are_read_and_cleared(opcode, words):
    config = CONFIG.replace(fused=True)
    take = f"{opcode} m=2 n=9 i_addr=5 i_stride=2 o_addr=64 o_stride=9 drain"
    product = "MATMUL acc_addr={} m=1 k=1 n=1"
    for row in (5, 6, 7, 8):
        assert errors(f"{product.format(row)}\n{take}\nHALT", config) == (
            f"{opcode} at word 13 reads acc without waiting for the write of MATMUL at word 0"
        )
    for row in (4, 9):
        assert check(pack(assemble(f"{product.format(row)}\n{take}\nHALT")), config) == 2
    assert errors(f"{take}\n{product.format(8)}\nHALT", config) == (
        f"MATMUL at word {words} writes acc without waiting for the write of {opcode} at word 0"
    )


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("NORM m=1 n=17 pre=254 per_tensor drain", 254),
        ("SOFTMAX m=1 n=17 params=255 per_tensor drain", 255),
        ("SOFTMAX m=1 n=17 params=253 drain", 253),
    ],
)
def test_parameters_of_what_is_taken_in_are_read_too(text, first):
    assert errors(text, CONFIG.replace(fused=True)) == (
        f"{text.split()[0]} at word 0 reads params from {first} to 256, but it has 256"
    )


def test_order_passes_through_other_engines():
    text = """
    LOAD m=1 row_bytes=8 push=MATRIX
    MATMUL a_addr=8 b_addr=8 m=1 k=1 n=1 pop=LOAD push=STORE
    STORE m=1 row_bytes=8 dram_addr=64 pop=MATRIX
    HALT
    """
    assert check(pack(assemble(text)), CONFIG) == 3


def test_loops_are_unrolled():
    text = """
    LOOP count=3
    LOAD m=1 row_bytes=8 push=STORE
    STORE m=1 row_bytes=8 dram_addr=64 pop=LOAD
    ENDLOOP
    HALT
    """
    assert errors(text) == (
        "LOAD at word 2 writes sp without waiting for the read of STORE at word 9"
    )


def test_tokens_without_a_partner_are_refused():
    assert errors("LOAD m=1 row_bytes=8 pop=STORE\nHALT") == (
        "LOAD at word 0 waits for a token from STORE, but no earlier step pushes one"
    )
    assert errors("LOAD m=1 row_bytes=8 push=STORE\nHALT") == (
        "Program leaves 1 tokens from LOAD to STORE behind"
    )


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
    found = errors(f"MATMUL m=1 k=1 n=1 {flags}", config)
    assert found == f"MATMUL at word 0 {message}"


def test_zero_points_need_their_field():
    config = CONFIG.replace(zero_points=False)
    assert errors("MATMUL m=1 k=1 n=1 a_zero=3", config) == (
        "MATMUL at word 0 has a_zero 3, but zero_points is false"
    )


@pytest.mark.parametrize(
    ("behind", "what"),
    [
        ("", "nothing"),
        ("MAP m=1 n=1\n", "MAP at word 15"),
        ("SOFTMAX m=1 n=4 i_addr=1 i_stride=8 per_tensor drain o_zero=1\n", "SOFTMAX at word 15"),
        ("SOFTMAX m=1 n=4 i_addr=1 i_stride=8 drain\n", "SOFTMAX at word 15"),
        ("SOFTMAX m=1 n=4 i_addr=1 limit_step=1 per_tensor drain\n", "SOFTMAX at word 15"),
    ],
)
def test_what_follows_a_softmax_is_like_it(behind, what):
    config = CONFIG.replace(fused=True)
    first = "SOFTMAX m=1 n=4 i_stride=8 limit=4 per_tensor drain followed\n"
    wanted = f"SOFTMAX at word 0 is followed by {what}, which is another command"
    assert errors(f"{first}{behind}HALT", config) == wanted
    alike = "SOFTMAX m=3 n=3 i_addr=1 i_stride=4 o_addr=9 limit=2 start=1 per_tensor drain\n"
    assert check(pack(assemble(f"{first}{alike}HALT")), config) == 2


PRODUCT = "MATMUL a_addr=64 b_addr=128 acc_addr={0} acc_stride=2 m={1} k=3 n={2} push=VECTOR"


@pytest.mark.parametrize(
    "take",
    [
        "DRAIN acc_addr=4 acc_stride=2 m=2 n={} o_addr=64 o_stride=32 per_tensor pop=MATRIX",
        "SOFTMAX i_addr=4 i_stride=2 m=2 n={} o_addr=64 o_stride=32 drain pop=MATRIX",
        "NORM i_addr=4 i_stride=2 m=2 n={} o_addr=64 o_stride=32 drain pop=MATRIX",
    ],
)
def test_sums_that_a_product_left_out_cannot_be_taken(take):
    """Of 13 columns on 8 the second tile's last three; a second product may be narrower."""
    config = CONFIG.replace(fused=True)
    name = take.split()[0]
    product = PRODUCT.format(4, 2, 13)
    for n in (1, 8, 13):
        text = f"{product}\n{take.format(n)}\nHALT"
        assert check(pack(assemble(text)), config) == 2
    for n in (14, 16):
        text = f"{product}\n{take.format(n)}\nHALT"
        assert errors(text, config) == (
            f"{name} at word 13 takes {n - 8} columns of accumulator row 6, of which MATMUL at "
            f"word 0 has summed 5"
        )
        machine = Interpreter(config)
        machine.load_program(pack(assemble(text)))
        with pytest.raises(ProgramError, match=rf"^{name} at word 13 takes {n - 8} columns of "):
            machine.start()
    # One row of the first tile is narrower, and is so again only after it was taken.
    narrow = PRODUCT.format(5, 1, 6)
    twice = take.format(13).replace("pop=MATRIX", "")
    assert errors(f"{product.replace(' push=VECTOR', '')}\n{narrow}\n{take.format(13)}\nHALT") == (
        f"{name} at word 26 takes 8 columns of accumulator row 5, of which MATMUL at word 13 has "
        f"summed 6"
    )
    assert check(pack(assemble(f"{product}\n{take.format(13)}\n{twice}\nHALT")), config) == 3


def test_accumulator_rows_cannot_be_taken_twice():
    """The first of two tile columns that share rows clears them for the second."""
    take = "DRAIN acc_addr=8 acc_stride={} m=4 n={} o_addr=64 o_stride=32 per_tensor\nHALT"
    for stride, n in ((4, 16), (-4, 16), (2, 8)):
        assert check(pack(assemble(take.format(stride, n))), CONFIG) == 1
    for stride in (3, 0, -3):
        assert errors(take.format(stride, 9)) == (
            f"DRAIN at word 0 takes accumulator rows twice: its tile columns are {stride} rows "
            f"apart and have m = 4"
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
