"""Words that are used as they are stored: every wrong bit is corrected or told a cycle later."""

from itertools import combinations

import numpy as np
import pytest
from amaranth.hdl import Signal

from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import IMMEDIATE_WIDTH, REGISTERS, WORD_WIDTH, Opcode
from celosia.arch.presets import PRESETS
from celosia.arch.protection import check_bits, code_columns
from celosia.hdl.control.sequencer import EARLY_WIDTH, Sequencer
from celosia.hdl.memory import late_ram
from celosia.hdl.memory.late_ram import LateRam
from celosia.tb.benches.bench_sequencer import expected_words, random_block
from tests.support.flipped_ram import FlippedRam
from tests.support.simulation import run_bench


@pytest.fixture
def flip(monkeypatch: pytest.MonkeyPatch) -> Signal:
    """Return the bits that come wrong from the memories of all :class:`LateRam`."""
    monkeypatch.setattr(FlippedRam, "flip", Signal(256))
    monkeypatch.setattr(late_ram, "Ram", FlippedRam)
    return FlippedRam.flip


def simulate(circuit, testbench) -> None:
    run_bench(circuit, testbench)


def test_one_wrong_bit_is_corrected_and_two_are_told_a_cycle_later(flip: Signal) -> None:
    width, word = 12, 0x5A3
    ram = LateRam(width, 4)
    bits = range(width + check_bits(code_columns(width, "correct")))
    flips = [0, *(1 << bit for bit in bits), *(1 << a | 1 << b for a, b in combinations(bits, 2))]

    async def testbench(ctx) -> None:
        for port, value in (("write_addr", 3), ("write_data", word), ("write_en", 1)):
            ctx.set(getattr(ram, port), value)
        await ctx.tick()
        ctx.set(ram.write_en, 0)
        ctx.set(ram.read_addr, 3)
        ctx.set(ram.read_en, 1)
        await ctx.tick()
        ctx.set(ram.read_en, 0)
        for bad in flips:
            ctx.set(flip, bad)
            ctx.set(ram.take, 0)
            await ctx.tick()
            assert not ctx.get(ram.repair)  # what is not taken is not told of
            ctx.set(ram.take, 1)
            early = ctx.get(ram.read_data)
            assert early == word ^ bad & (1 << width) - 1
            await ctx.tick()
            ctx.set(flip, 0)
            ctx.set(ram.taken, early)
            assert ctx.get(ram.repair) == (bad != 0)
            assert ctx.get(ram.errors) == bad.bit_count()
            if bad.bit_count() < 2:
                assert ctx.get(ram.corrected) == word

    simulate(ram, testbench)


@pytest.mark.parametrize(("seed", "registered"), [(1, False), (2, True)])
def test_programs_mean_the_same_with_a_wrong_bit_in_many_words(
    flip: Signal, seed: int, registered: bool
) -> None:
    config = PRESETS["tiny"].replace(protect="program=correct", registered=registered)
    width = WORD_WIDTH + registered * EARLY_WIDTH
    bits = width + check_bits(code_columns(width, "correct"))
    random = np.random.default_rng(seed)
    program, expected = [], [[]]
    while not 100 < len(expected[0]) < 250 or len(program) > config.control.program_depth:
        program = pack([*random_block(config, random, 0), Instruction(Opcode.HALT)])
        registers = [0] * REGISTERS  # which hold from run to run
        expected = [expected_words(program, 0, registers) for _ in range(2)]
    sequencer = Sequencer(config.control, config.instructions)
    told, sent = [0, 0], []

    async def testbench(ctx) -> None:
        ctx.set(sequencer.scrub, 1)
        ctx.set(sequencer.program_en, 1)
        for address, word in enumerate(program):
            ctx.set(sequencer.program_addr, address)
            ctx.set(sequencer.program_data, word)
            await ctx.tick()
        ctx.set(sequencer.scrub, 0)
        ctx.set(sequencer.program_en, 0)
        ctx.set(sequencer.idle, 1)
        for run in range(2):  # the second without a wrong bit
            ctx.set(sequencer.start, 1)
            await ctx.tick()
            ctx.set(sequencer.start, 0)
            sent.append([])
            while ctx.get(sequencer.busy):
                wrong = run == 0 and random.random() < 0.5
                ctx.set(flip, 1 << int(random.integers(bits)) if wrong else 0)
                ctx.set(sequencer.o.ready, int(random.random() < 0.7))
                if ctx.get(sequencer.o.valid) and ctx.get(sequencer.o.ready):
                    p = sequencer.o.p
                    word = {name: ctx.get(getattr(p, name)) for name in ("first", "last", "word")}
                    word["engine"] = int(ctx.get(p.engine))
                    if not word["first"]:
                        word["word"] %= 1 << IMMEDIATE_WIDTH
                    sent[-1].append(word)
                errors = ctx.get(sequencer.errors)
                assert errors < 2
                told[run] += errors
                await ctx.tick()
            assert not ctx.get(sequencer.error)

    simulate(sequencer, testbench)
    assert sent == expected
    assert told[0] > 50
    assert told[1] == 0
