"""The proof that tokens order every hazard."""

import pytest

from celosia.arch.assembler import assemble
from celosia.arch.errors import ProgramError
from celosia.arch.instruction import pack
from celosia.arch.presets import PRESETS
from celosia.sim.checker import check
from celosia.sim.interpreter import Interpreter

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
    ("behind", "rule"),
    [
        ("", "nothing"),
        ("MAP m=1 n=1\n", "MAP at word 15"),
        ("SOFTMAX m=1 n=4 i_addr=1 i_stride=8 per_tensor drain o_zero=1\n", "SOFTMAX at word 15"),
        ("SOFTMAX m=1 n=4 i_addr=1 i_stride=8 drain\n", "SOFTMAX at word 15"),
        ("SOFTMAX m=1 n=4 i_addr=1 limit_step=1 per_tensor drain\n", "SOFTMAX at word 15"),
    ],
)
def test_what_follows_a_softmax_is_like_it(behind, rule):
    config = CONFIG.replace(fused=True)
    first = "SOFTMAX m=1 n=4 i_stride=8 limit=4 per_tensor drain followed\n"
    wanted = f"SOFTMAX at word 0 is followed by {rule}, which is another command"
    assert errors(f"{first}{behind}HALT", config) == wanted
    alike = "SOFTMAX m=3 n=3 i_addr=1 i_stride=4 o_addr=9 limit=2 start=1 per_tensor drain\n"
    assert check(pack(assemble(f"{first}{alike}HALT")), config) == 2


@pytest.mark.parametrize(
    ("behind", "rule"),
    [
        ("", "nothing, which is another command"),
        ("DRAIN m=1 n=4 o_addr=9 o_zero=1 r_addr=64 wide_out add\n", "another command"),
        ("DRAIN m=1 n=4 o_addr=9 r_addr=64 wide_out\n", "another command"),
        ("DRAIN m=1 n=4 o_addr=99 r_addr=14 wide_out add\n", "which reads its output"),
    ],
)
def test_what_follows_a_drain_is_like_it_and_reads_something_else(behind, rule):
    config = CONFIG.replace(fused=True)
    first = "DRAIN m=1 n=4 o_addr=8 r_addr=32 wide_out add followed\n"
    refusal = errors(f"{first}{behind}HALT", config)
    assert refusal.startswith("DRAIN at word 0 is followed by ")
    assert refusal.endswith(rule)
    alike = "DRAIN m=3 n=3 acc_addr=1 o_addr=99 o_stride=8 r_addr=16 wide_out add\n"
    assert check(pack(assemble(f"{first}{alike}HALT")), config) == 2
    assert errors(f"{first}{alike}HALT", CONFIG.replace(fused=False)).startswith(
        "DRAIN at word 0 needs the unit fused"
    )


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
            f"{name} at word 13 takes {n - 8} columns of accumulator row 6, but MATMUL at "
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
        f"{name} at word 26 takes 8 columns of accumulator row 5, but MATMUL at word 13 has "
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


def test_registers_before_the_start_are_taken() -> None:
    words = pack(
        assemble(
            "LOAD sp_addr=r3 m=1 row_bytes=8\nSTORE dram_addr=64 sp_addr=16 m=1 row_bytes=8\nHALT"
        )
    )
    assert check(words, CONFIG) == 2
    message = r"^STORE at word 7 reads sp without waiting for the write of LOAD at word 0$"
    with pytest.raises(ProgramError, match=message):
        check(words, CONFIG, registers=[0, 0, 0, 16, *[0] * 12])
