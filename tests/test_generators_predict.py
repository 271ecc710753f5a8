"""Predicted cycles: by hand where one engine works, and where engines wait for each other."""

import itertools

import pytest

from celosia.arch.formats import format_select_flags
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Engine, Opcode
from celosia.arch.latency import TABLE_LATENCY, sparse_cycles
from celosia.arch.presets import PRESETS
from celosia.generators.program.predict import predict
from celosia.generators.program.spans import AccumulatorSpan
from celosia.generators.program.timing import VectorTiming
from celosia.hdl.functions.function_table import FunctionTable
from celosia.hdl.functions.rotary import RotaryUnit
from celosia.sim.flow import run
from celosia.tb.machine.simulators import PROMPT, make_machine
from celosia.tb.machine.toolchain import missing_tools
from tests.support.text_cases import TEXT

SMALL = PRESETS["small"]
HALT = Instruction(Opcode.HALT)


def matmul(**operands) -> Instruction:
    sizes = {"m": 16, "k": 32, "n": 24, "acc_stride": 16, "a_stride": 32, "b_stride": 24}
    return Instruction(Opcode.MATMUL, sizes | {"b_addr": SMALL.bank_bytes} | operands)


def cycles(program, config=SMALL, **options) -> int:
    return predict(pack([*program, HALT]), config, **options).cycles


def test_products_follow_each_other_without_a_pause() -> None:
    single, two = cycles([matmul()]), cycles([matmul(), matmul()])
    assert two - single == 16 * 4 * 3


def test_operands_in_one_bank_wait_for_each_other() -> None:
    apart, together = cycles([matmul()]), cycles([matmul(b_addr=4096)])
    # Every tile waits for its eight lines of weights; otherwise only the first, and for one.
    assert together - apart == 8 * (4 * 3) - 1


@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_codes_are_read_in_fewer_cycles_than_their_weights() -> None:
    """Of INT8, INT4 and two bits: operands in one bank, and a MAP that reads the weights' bank."""
    machine = make_machine(TEXT, "verilator", 1 << 12, PROMPT)
    sizes = {"m": 8, "n": 256, "i_stride": 256, "o_stride": 256}
    move = Instruction(Opcode.MAP, sizes | {"i_addr": SMALL.bank_bytes + 4096})
    spent = []
    for index in (0, 1, 4):
        flags = format_select_flags(index)
        codes, together = (
            Instruction(Opcode.MATMUL, matmul(m=8, **addr).operands, flags)
            for addr in ({}, {"b_addr": 4096})
        )
        for program in ([together] * 3, [*[codes] * 3, move]):
            words = pack([*program, HALT])
            machine.load_program(words)
            counted = machine.start().cycles
            expected = predict(words, TEXT, latency=PROMPT.latency, interval=PROMPT.interval)
            assert expected.cycles == pytest.approx(counted, rel=0.03)
            spent.append(counted)
    assert spent == sorted(spent, reverse=True)


def test_resident_products_take_a_cycle_for_each_row_and_tile() -> None:
    resident = Instruction(Opcode.MATMUL, matmul(slot=2).operands, frozenset({"resident"}))
    assert cycles([resident] * 3) - cycles([resident] * 2) == 16 * 4 * 3
    # As each command waits for its 13 words, short products take as long as these come.
    short = Instruction(Opcode.MATMUL, dict(resident.operands) | {"m": 1}, resident.flags)
    assert cycles([short] * 9) - cycles([short] * 8) == 13


@pytest.mark.parametrize(("multiplier", "passes"), [("nibbles", 2), ("adders", 8)])
def test_a_product_takes_its_passes(multiplier, passes) -> None:
    config = SMALL.replace(multiplier=multiplier, operands="int8", gating="none")
    assert cycles([matmul()] * 2, config) - cycles([matmul()], config) == passes * 16 * 4 * 3


def test_a_product_of_codes_takes_a_pass_for_each_of_their_bits() -> None:
    config = TEXT.replace(multiplier="adders", operands="int8", gating="none")
    for index, bits in ((1, 4), (2, 3), (3, 1)):
        codes = [Instruction(Opcode.MATMUL, matmul().operands, format_select_flags(index))] * 2
        assert cycles(codes, config) - cycles(codes[1:], config) == bits * 16 * 4 * 3


def test_lines_of_codes_and_of_scales_are_waited_for() -> None:
    """Operands in one bank wait for the bytes of codes; a group has one line more."""
    for index in (1, 4):
        flags = format_select_flags(index)
        share = TEXT.formats[index - 1].bits / 8
        apart, beside = (
            cycles([Instruction(Opcode.MATMUL, matmul(**addr).operands, flags)], TEXT)
            for addr in ({}, {"b_addr": 4096})
        )
        assert beside - apart == 8 * share * (4 * 3 - 1)
    single, grouped = (
        cycles(
            [Instruction(Opcode.MATMUL, matmul(m=1).operands, format_select_flags(1) | more)], TEXT
        )
        for more in (set(), {"grouped"})
    )
    # Two groups of sixteen rows in each of three columns of tiles.
    assert grouped - single == 2 * 3
    # Where there are formats, all weights pass the decoder.
    decoded = SMALL.replace(weight_formats="int4")
    assert cycles([matmul()], decoded) == cycles([matmul()]) + 1


def test_a_sparse_product_takes_its_beats() -> None:
    config = SMALL.replace(sparse_lanes=4)
    sizes = {"m": 3, "k": 32, "n": 24, "acc_stride": 16, "a_stride": 32, "b_addr": SMALL.bank_bytes}
    durations = []
    for beats in (200, 300):
        sparse = Instruction(Opcode.SPARSE, sizes | {"beats": beats})
        two, three = (cycles([sparse] * count, config) for count in (2, 3))
        durations.append(three - two)
    more = [sparse_cycles(config, 4, 3, 32, 24, beats) for beats in (200, 300)]
    assert durations[1] - durations[0] == more[1] - more[0] > 0


def test_a_preload_takes_a_cycle_for_each_line_and_one_of_the_products() -> None:
    sizes = {"k": 32, "n": 24, "slot": 2, "b_addr": SMALL.bank_bytes}
    preload = Instruction(Opcode.PRELOAD, sizes)
    assert cycles([preload] * 3) - cycles([preload] * 2) == 32 * 3
    flags = frozenset({"append", "b_transpose"})
    # Columns 5 to 14, in four tiles each.
    append = Instruction(Opcode.PRELOAD, sizes | {"n": 10, "line": 5}, flags)
    assert cycles([append] * 3) - cycles([append] * 2) == 10 * 4
    long = matmul(m=100)
    filling = Instruction(
        Opcode.PRELOAD, sizes | {"k": 3, "n": 8, "line": 1}, frozenset({"append"})
    )
    assert cycles([long, filling, long]) - cycles([long, long]) == 1


def test_a_tree_is_sooner_done_but_waits_for_the_last_line() -> None:
    tree = SMALL.replace(array="tree")
    sooner = (8 + 8 + 3) - (3 + 3)
    assert cycles([matmul()]) - cycles([matmul()], tree) == sooner - (8 - 1)
    resident = Instruction(Opcode.MATMUL, matmul(slot=2).operands, frozenset({"resident"}))
    assert cycles([resident]) - cycles([resident], tree) == sooner


@pytest.mark.parametrize(("k", "counted"), [(5, 55), (8, 61), (32, 109)])
def test_parameters_wait_for_weights_that_a_tree_reads_first(k, counted) -> None:
    """Parameters are in the weights' bank; a product's last rows of weights may be few."""
    tree = PRESETS["tiny"].replace(array="tree", max_k=64, acc_depth=64)
    sizes = {"m": 4, "k": k, "n": 8, "acc_stride": 9, "a_stride": 32, "b_stride": 8}
    product = Instruction(Opcode.MATMUL, sizes | {"b_addr": tree.bank_bytes})
    params = Instruction(Opcode.PARAMS, {"i_addr": tree.bank_bytes + 256, "n": 8})
    # As Verilator counts it.
    assert cycles([product, params], tree) == pytest.approx(counted, abs=5)


@pytest.mark.parametrize(("loads", "counted"), [(12, 3328), (16, 3471), (24, 3871), (30, 4171)])
def test_the_memory_takes_few_bursts_ahead(loads, counted) -> None:
    """A MAP follows short LOADs in the program; the memory takes eight of them."""
    config = PRESETS["tiny"]
    program = [
        Instruction(Opcode.LOAD, {"dram_addr": 256 * place, "m": 1, "row_bytes": 200})
        for place in range(loads)
    ]
    program += 2 * [move(config, config.bank_bytes)]
    # As Verilator counts it.
    assert cycles(program, config) == pytest.approx(counted, rel=0.005)


def move(config, target: int) -> Instruction:
    """Return a MAP from the second bank to ``target``."""
    sizes = {"m": 100, "n": 16, "i_stride": 16, "o_stride": 16, "i_addr": config.bank_bytes}
    return Instruction(Opcode.MAP, sizes | {"o_addr": target})


@pytest.mark.parametrize(("moves", "bank", "counted"), [(1, 1, 1630), (1, 0, 2630), (2, 0, 4230)])
def test_a_load_waits_for_writes_to_its_bank(moves, bank, counted) -> None:
    config = PRESETS["tiny"]
    load = Instruction(Opcode.LOAD, {"m": 1, "row_bytes": 4000})
    program = [*[move(config, bank * config.bank_bytes)] * moves, load]
    # As Verilator counts it.
    assert cycles(program, config) == pytest.approx(counted, rel=0.005)


@pytest.mark.parametrize(
    ("rows", "row_bytes", "counted"), [(64, 8, 363), (64, 32, 565), (200, 4, 1045)]
)
def test_short_rows_wait_for_the_latency(rows, row_bytes, counted) -> None:
    sizes = {"dram_stride": 64, "sp_stride": row_bytes, "m": rows, "row_bytes": row_bytes}
    load = Instruction(Opcode.LOAD, sizes)
    # As Verilator counts it.
    assert cycles([load], PRESETS["tiny"], latency=40) == pytest.approx(counted, abs=10)


def test_a_registered_machine_answers_later() -> None:
    registered = SMALL.replace(registered=True)
    # One cycle of these is that of its place in front of the engine, one that of its last sums.
    assert cycles([matmul()], registered) == cycles([matmul()]) + 5
    move = Instruction(Opcode.MAP, {"m": 4, "n": 16, "i_stride": 16, "o_stride": 16})
    assert cycles([move], registered) == cycles([move]) + 8
    # Products of two rows wait for their eight lines of weights alone.
    short = [matmul(m=2)] * 3
    assert cycles(short, registered) - cycles(short[1:], registered) == 8 * (4 * 3)


def test_sums_that_are_corrected_from_registers_are_drained_a_cycle_later() -> None:
    plain, corrected = (
        SMALL.replace(registered=True, protect=f"accumulators={level}")
        for level in ("detect", "correct")
    )
    assert cycles([matmul()], corrected) == cycles([matmul()], plain) + 1
    assert cycles([matmul()], SMALL.replace(protect="correct")) == cycles([matmul()])


def test_a_drain_behind_a_product_takes_what_both_take() -> None:
    push, pop = {Engine.VECTOR}, {Engine.MATRIX}
    sizes = {"m": 16, "n": 24, "acc_stride": 16, "o_stride": 24}
    drain = Instruction(Opcode.DRAIN, sizes, frozenset(), frozenset(pop))
    product = Instruction(matmul().opcode, matmul().operands, push=frozenset(push))
    program = pack([product, drain, HALT])
    (step,) = [step for step in run(program) if step.engine == Engine.VECTOR]
    expected = VectorTiming(SMALL).cycles(step)
    assert expected == 16 * 3 + 12
    assert predict(program, SMALL).cycles - cycles([matmul()]) == expected


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("first", [0, 1])
def test_a_row_waits_until_products_write_none_of_its_parity(count: int, first: int) -> None:
    sums = AccumulatorSpan(10, 20, first, count)
    for now, parity in itertools.product(range(8, 22), (0, 1)):
        free = now
        while 10 <= free < 20 and (first + ((free - 10) // count if count else 0)) % 2 == parity:
            free += 1
        assert sums.wait(now, parity) == free - now


def test_a_drain_waits_for_sums_of_the_same_parity() -> None:
    sizes = matmul(m=1, n=64, acc_stride=1, slot=2).operands
    first = Instruction(
        Opcode.MATMUL, sizes, frozenset({"resident"}), push=frozenset({Engine.VECTOR})
    )
    drain = Instruction(
        Opcode.DRAIN, {"m": 1, "n": 64, "acc_stride": 1}, pop=frozenset({Engine.MATRIX})
    )
    cycles_by_addr = {}
    for addr in (64, 65):
        second = Instruction(first.opcode, sizes | {"acc_addr": addr}, first.flags)
        begin, end = predict(pack([first, second, drain, HALT]), SMALL).timeline[-1]
        cycles_by_addr[addr] = end - begin
    # Verilator counts 44 and 40; alone a drain takes 20.
    assert cycles_by_addr == {64: 42, 65: 38}


def test_a_norm_and_its_sums_in_one_bank_take_turns() -> None:
    bank = SMALL.bank_bytes
    sizes = {"m": 16, "n": 96, "i_stride": 192, "s_stride": 192, "o_stride": 96, "o_addr": bank}
    apart, together = (
        cycles([Instruction(Opcode.NORM, sizes | {"s_addr": addr}, frozenset({"write_sum"}))])
        for addr in (0, bank + 4096)
    )
    # As Verilator counts it: 441 cycles instead of 261.
    assert together - apart == 180


def test_a_softmax_begins_while_the_one_that_it_follows_is_written() -> None:
    config = PRESETS["story"]
    flags = frozenset({"drain", "per_tensor"})
    sizes = {"m": 4, "n": 128, "limit": 128, "i_stride": 4, "o_stride": 128}
    alone, first = (
        Instruction(Opcode.SOFTMAX, sizes, flags | more) for more in (set(), {"followed"})
    )
    (step,) = run(pack([alone, HALT]))
    timing = VectorTiming(config)
    beats = timing.beats(step)
    assert beats == 4 * 11
    saved = cycles([alone, alone], config) - cycles([first, alone], config)
    # What is read for this long would otherwise be written first. Verilator counts as many.
    assert saved == timing.cycles(step) - (beats + 1)


def test_a_softmax_begins_when_the_one_before_the_last_is_written() -> None:
    config = PRESETS["story"]
    sizes = {"m": 4, "n": 24, "limit": 24, "i_stride": 4, "o_stride": 128}
    first = Instruction(Opcode.SOFTMAX, sizes, frozenset({"drain", "per_tensor", "followed"}))
    alone = Instruction(first.opcode, sizes, first.flags - {"followed"})
    (step,) = run(pack([alone, HALT]))
    whole = VectorTiming(config).cycles(step)
    begins = [begin for begin, _ in predict(pack([first] * 3 + [alone, HALT]), config).timeline]
    # Verilator counts as many.
    assert begins[1] - begins[0] == max(8 + 1, first.definition.words)
    assert begins[2] - begins[0] == begins[3] - begins[1] == whole + 1


def test_a_program_behind_others_takes_what_it_takes_alone() -> None:
    others = [matmul(), matmul(), HALT]
    whole = pack([*others, matmul(), HALT])
    start = len(pack(others))
    assert predict(whole, SMALL, start=start).cycles == cycles([matmul()])


@pytest.mark.parametrize(
    ("flag", "latency"),
    [
        ("rotate", RotaryUnit.latency),
        ("times", RotaryUnit.latency),
        ("polynomial", FunctionTable.latency - TABLE_LATENCY),
    ],
)
def test_what_a_flag_adds_takes_its_latency_once(flag, latency) -> None:
    config = SMALL.replace(rotary=True, wide_functions=True)
    program = [
        Instruction(Opcode.DRAIN, {"m": 3, "n": 16, "table": 8}, frozenset(flags))
        for flags in ([], [flag])
    ]
    plain, longer = (VectorTiming(config).cycles(step) for step in run(pack([*program, HALT])))
    assert longer - plain == latency


@pytest.mark.parametrize(("latency", "interval"), [(8, 1), (40, 1), (40, 3)])
def test_a_load_takes_its_words_and_the_latency(latency, interval) -> None:
    load = Instruction(
        Opcode.LOAD, {"m": 4, "row_bytes": 256, "dram_stride": 256, "sp_stride": 256}
    )
    prediction = predict(pack([load, load, HALT]), SMALL, latency=latency, interval=interval)
    assert prediction.words_read == 2 * 4 * 32
    base = predict(pack([load, load, HALT]), SMALL, latency=0, interval=1)
    assert prediction.cycles - base.cycles == latency + 2 * 4 * 32 * (interval - 1)


def test_a_part_of_a_word_is_a_word() -> None:
    durations = [
        cycles([Instruction(Opcode.LOAD, {"m": 3, "row_bytes": size, "dram_stride": 16})] * 9)
        for size in (9, 16, 17)
    ]
    assert durations[0] == durations[1] < durations[2]


def test_turns_of_a_loop_take_their_words() -> None:
    def looped(count: int) -> int:
        loop = Instruction(Opcode.LOOP, {"count": count})
        return cycles([loop, matmul(), Instruction(Opcode.ENDLOOP)])

    assert looped(5) - looped(4) == 16 * 4 * 3


def test_a_missing_token_is_named() -> None:
    waiting = Instruction(matmul().opcode, matmul().operands, pop=frozenset({Engine.LOAD}))
    with pytest.raises(ValueError, match=r"^The program waits for a token that no engine gives$"):
        predict(pack([waiting, HALT]), SMALL)
