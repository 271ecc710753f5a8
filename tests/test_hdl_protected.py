"""Check bits: codes, the circuit that decodes them, memories that carry them, the field."""

from itertools import combinations

import numpy as np
import pytest
from amaranth.hdl import Signal
from amaranth.sim import Simulator

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.arch.protection import check_bits, code_columns, column_patterns, protection
from celosia.hdl.memory import protected
from celosia.hdl.memory.protected import ProtectedRam, WordDecoder, protected_ram
from celosia.hdl.memory.ram import Ram
from celosia.sim.protection import Found, decode, encode
from tests.support.flipped_ram import FlippedRam

FOUND_BITS = {False: 1, True: 2}
"""``errors`` of a word with a corrected part, and of one that is not right."""

FOUND = {0: Found.RIGHT, 1: Found.CORRECTED, 2: Found.WRONG}


def simulate(circuit, testbench) -> None:
    simulator = Simulator(circuit)
    simulator.add_clock(1e-6, if_exists=True)
    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("width", [1, 8, 28, 32, 57])
def test_columns_tell_one_wrong_bit_from_two(width: int) -> None:
    columns = code_columns(width, "correct")
    checks = check_bits(columns)
    assert len(columns) == width
    every = [*columns, *(1 << bit for bit in range(checks))]
    assert len(set(every)) == len(every)
    assert all(column.bit_count() % 2 for column in every)
    # The fewest check bits with which that can be: all columns of an odd number of bits.
    assert 1 << (checks - 1) >= width + checks
    assert checks == 3 or 1 << (checks - 2) < width + checks - 1


@pytest.mark.parametrize("width", [1, 4, 8, 11, 16, 28, 32, 36, 40, 57])
def test_patterns_are_those_of_one_wrong_bit_alone(width: int) -> None:
    columns = code_columns(width, "correct")
    patterns = column_patterns(columns)
    for pattern in [*columns, *(1 << bit for bit in range(check_bits(columns)))]:
        matches = [not (~pattern & wrong or pattern & right) for wrong, right in patterns]
        assert matches == [column == pattern for column in columns]
    if all(column.bit_count() == 3 for column in columns):
        assert all(right == 0 for _, right in patterns)


@pytest.mark.parametrize(("width", "level"), [(8, "detect"), (1, "correct"), (8, "correct")])
def test_the_decoder_is_its_model_with_none_one_and_two_wrong_bits(width: int, level: str) -> None:
    checks = check_bits(code_columns(width, level))
    bits = range(width + checks)
    flips = [0, *(1 << bit for bit in bits), *(1 << a | 1 << b for a, b in combinations(bits, 2))]
    words = range(1 << width) if width < 8 else [0, 255, 0x5A, 0x13]
    decoder = WordDecoder(width, level)

    async def testbench(ctx) -> None:
        for word in words:
            for flip in flips:
                stored = word | encode(word, width, level) << width
                stored ^= flip
                ctx.set(decoder.stored, stored)
                await ctx.delay(1e-7)
                decoded = (ctx.get(decoder.word), FOUND[ctx.get(decoder.errors)])
                mask = (1 << width) - 1
                assert decoded == decode(stored & mask, stored >> width, width, level)
                if level == "correct" and flip.bit_count() == 1:
                    assert decoded == (word, Found.CORRECTED)
                elif flip.bit_count():
                    both = level == "detect" and flip.bit_count() == 2
                    assert decoded[1] == (Found.RIGHT if both else Found.WRONG)

    simulate(decoder, testbench)


@pytest.mark.parametrize("level", ["detect", "correct"])
@pytest.mark.parametrize("parts", [False, True])
def test_a_protected_memory_is_a_memory(level: str, parts: bool) -> None:
    ram = ProtectedRam(24, 10, level=level, part=8, parts=parts)
    rng = np.random.default_rng(3)
    model = [0] * 10

    async def testbench(ctx) -> None:
        wanted = None
        for _ in range(300):
            enables = int(rng.integers(8 if parts else 2))
            write_addr, read_addr = (int(n) for n in rng.integers(10, size=2))
            value, reads = int(rng.integers(1 << 24)), bool(rng.integers(2))
            ctx.set(ram.write_en, enables)
            ctx.set(ram.write_addr, write_addr)
            ctx.set(ram.write_data, value)
            ctx.set(ram.read_en, reads)
            ctx.set(ram.read_addr, read_addr)
            await ctx.tick()
            if reads:
                collides = enables and write_addr == read_addr
                wanted = None if collides else model[read_addr]
            mask = sum(0xFF << 8 * place for place in range(3) if enables >> place & 1)
            mask = mask if parts else 0xFFFFFF * enables
            model[write_addr] = model[write_addr] & ~mask | value & mask
            if wanted is not None:
                assert ctx.get(ram.read_data) == wanted
            assert ctx.get(ram.errors) == 0

    simulate(ram, testbench)


@pytest.mark.parametrize("level", ["detect", "correct"])
@pytest.mark.parametrize("held", [False, True])
def test_wrong_bits_are_told_a_cycle_later_or_at_once(
    monkeypatch: pytest.MonkeyPatch, level: str, held: bool
) -> None:
    """Any one or two bits of a part, in the first cycle in which a word is there."""
    monkeypatch.setattr(FlippedRam, "flip", Signal(256))
    monkeypatch.setattr(protected, "Ram", FlippedRam)
    ram = ProtectedRam(16, 4, level=level, part=8, held=held)
    size = 8 + check_bits(ram.columns)
    single = [1 << bit for bit in range(2 * size)]
    pairs = [1 << a | 1 << b for a, b in combinations(range(size, 2 * size), 2)]
    rng = np.random.default_rng(5)

    async def testbench(ctx) -> None:
        before = 0
        for bad in [0, *single, 0, *pairs, 0]:
            reads = held or bool(rng.integers(4))  # with held it tells of what it still shows
            ctx.set(ram.read_en, reads)
            await ctx.tick()
            ctx.set(FlippedRam.flip, bad)
            wrong = level == "detect" or bad.bit_count() == 2
            told = FOUND_BITS[wrong] if reads and bad else 0
            if level == "detect" and bad.bit_count() == 2:
                told = 0
            assert ctx.get(ram.errors) == (told if held else before), hex(bad)
            before = told

    simulate(ram, testbench)


def test_without_protection_it_is_a_plain_memory() -> None:
    assert type(protected_ram(8, 4, "none")) is Ram
    assert not PRESETS["small"].protects


def test_the_field_is_a_level_or_one_for_some_units() -> None:
    config = Config.of(protect="scratchpad=correct,program=detect")
    levels = [config.protected(unit) for unit in protection("none")]
    assert levels == ["correct", "none", "detect", "none", "none", "none"]
    assert config.protects
    assert set(protection("detect").values()) == {"detect"}
    told = {unit for unit, level in protection("correct").items() if level == "detect"}
    assert told == {"parameters", "control"}


@pytest.mark.parametrize("text", ["", "some", "scratchpad", "scratchpad=high", "array=detect"])
def test_other_texts_are_refused(text: str) -> None:
    message = (
        "Field protect must be none, detect, correct, or UNIT=LEVEL parted by commas with a unit "
        f"of scratchpad, accumulators, program, parameters, queues, control, not {text!r}"
    )
    with pytest.raises(InputError) as refused:
        Config.of(protect=text)
    assert str(refused.value) == message
