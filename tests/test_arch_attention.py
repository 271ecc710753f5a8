"""ATTENTION as commands: their order, their tokens, their keys."""

import pytest

from arch.assembler import assemble
from arch.attention import Attention, cut, expand
from arch.instruction import pack
from arch.isa import DEFINITIONS, Engine, Opcode
from arch.presets import PRESETS
from generators.program.tokens import insert_tokens
from sim.checker import check
from sim.flow import resolve, run

CONFIG = PRESETS["small"]
TEXT = (
    "ATTENTION q_addr=0 q_stride=32 q_head=16 k_addr=16384 k_stride=16 v_addr=20480 v_stride=16 "
    "o_addr=8192 o_stride=32 o_head=16 p_addr=32768 p_stride=128 p_buffer=16384 m=20 k=16 n=40 "
    "heads=2 group=2 height=8 row_head=20 limit=40 v_acc_addr=512 acc_buffer=256 first"
)


def attention(**operands: int) -> Attention:
    values = dict.fromkeys(DEFINITIONS[Opcode.ATTENTION].operands, 0)
    values |= {"m": 40, "k": 16, "n": 64, "heads": 1, "group": 1, "height": 16, "limit": 64}
    nothing: frozenset[Engine] = frozenset()
    return Attention(
        operands=values | operands, flags=frozenset({"first"}), pop=nothing, push=nothing
    )


def test_the_array_has_the_next_scores_to_compute_while_weights_are_made():
    opcodes = [command.opcode.name for command in expand(attention())]
    scores, weights, values, output = "MATMUL", ["DRAIN", "SOFTMAX"], "MATMUL", "DRAIN"
    assert opcodes == [
        scores,
        *[scores, *weights, values],
        *[scores, *weights, output, values],
        *[*weights, output, values],
        output,
    ]


def test_rows_see_the_keys_of_their_window_only():
    causal = list(expand(attention(start_step=0, limit=1, limit_step=1)))
    keys = [c.operand("n").immediate for c in causal if "b_transpose" in c.flags]
    assert keys == [16, 32, 40]
    window = attention(m=64, start=-7, start_step=1, limit=1, limit_step=1, k_stride=16)
    products = [c for c in expand(window) if "b_transpose" in c.flags]
    assert [c.operand("n").immediate for c in products] == [16, 23, 23, 23]
    assert [c.operand("b_addr").immediate // 16 for c in products] == [0, 9, 25, 41]


@pytest.mark.parametrize(
    ("starts", "limits", "found"),
    [
        ((0, 0), (9, 9), (0, 9)),
        ((-5, 3), (20, 4), (0, 9)),
        ((3, 5), (5, 7), (3, 4)),
        ((12, 20), (30, 40), (8, 1)),
        ((2, 2), (-3, 1), (2, 1)),
    ],
)
def test_a_step_takes_at_least_one_key(starts, limits, found):
    assert cut(starts, limits, 9) == found


def test_its_own_tokens_order_everything():
    assert check(pack(assemble(f"{TEXT}\nHALT")), CONFIG) == 30
    steps = list(run(pack(assemble(f"{TEXT} pop=LOAD,STORE push=LOAD,MATRIX\nHALT"))))
    assert steps[0].pop == {Engine.LOAD, Engine.STORE}
    assert steps[-1].push == {Engine.LOAD, Engine.MATRIX}
    assert all(Engine.LOAD not in step.pop | step.push for step in steps[1:-1])


def test_others_wait_for_it_as_a_whole_and_it_waits_for_them():
    text = f"""
    LOAD sp_addr=16384 sp_stride=16 dram_stride=16 m=40 row_bytes=16
    MAP i_addr=60000 o_addr=0 o_stride=32 m=20 n=32 per_tensor
    {TEXT}
    {TEXT}
    LOAD sp_addr=16384 sp_stride=16 dram_stride=16 m=40 row_bytes=16
    STORE sp_addr=8192 sp_stride=32 dram_addr=4096 dram_stride=32 m=20 row_bytes=32
    MATMUL a_addr=8192 a_stride=32 b_addr=49152 b_stride=8 m=20 k=32 n=8
    DRAIN acc_addr=0 m=20 n=8 o_addr=0 o_stride=8 per_tensor
    HALT
    """
    ordered = insert_tokens(assemble(text), CONFIG)
    first, second = [one for one in ordered if one.opcode == Opcode.ATTENTION]
    assert first.pop == {Engine.LOAD, Engine.VECTOR}
    assert not first.push
    assert not second.pop
    assert second.push == {Engine.LOAD, Engine.STORE, Engine.MATRIX}
    assert check(pack(ordered), CONFIG) == 66


def test_a_step_that_is_missing_a_size_is_refused():
    with pytest.raises(ValueError, match=r".") as caught:
        check(pack(assemble("HALT\nATTENTION m=1 k=1 n=1 heads=1 group=1\nHALT")), CONFIG, 1)
    assert str(caught.value) == "ATTENTION at word 1 needs height from 1 to 65535, not 0"


def test_registers_are_resolved_before():
    text = "SET register=3 value=100\n" + TEXT.replace("q_addr=0", "q_addr=28+r3") + "\nHALT"
    (step,) = resolve(pack(assemble(text)))
    assert step.engine == Engine.MATRIX
    assert step["q_addr"] == 128
    assert next(run(pack(assemble(text))))["a_addr"] == 128
