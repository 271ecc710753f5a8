"""Bench of the ATTENTION expander: what passes, and what it makes of ATTENTION, word for word.

Parameters: ``instructions`` (how many) and ``stall`` (probability of a pause of ``i`` and ``o``).
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from arch.attention import Attention, expand
from arch.instruction import Instruction
from arch.isa import DEFINITIONS, IMMEDIATE_WIDTH, Engine, Opcode
from hdl.ports import WORD
from tb.bench import StreamDriver, StreamMonitor, pack, parameters, rng, start_clock

BLOCK_CYCLES = 180
"""Cycles that a block of rows may take, its keys fewer than 256."""
FIRST_CYCLES = 95
"""Cycles from the last word of an ATTENTION to the first of its commands, as many keys."""


def random_attention(random: np.random.Generator) -> Instruction:
    """Return an ATTENTION of a few blocks, with any addresses and a window of any kind."""
    definition = DEFINITIONS[Opcode.ATTENTION]
    bound = 1 << (IMMEDIATE_WIDTH - 1)
    operands = {name: int(random.integers(-bound, bound)) for name in definition.operands}
    height = int(random.integers(1, 40))
    operands |= {
        "m": int(random.integers(1, 3 * height)),
        "k": int(random.integers(1, 200)),
        "n": int(random.integers(1, 256)),
        "heads": int(random.integers(1, 4)),
        "group": int(random.integers(1, 4)),
        "height": height,
        "start": int(random.integers(-100, 200)),
        "start_step": int(random.integers(-3, 4)),
        "limit": int(random.integers(-50, 300)),
        "limit_step": int(random.integers(-3, 4)),
    }
    return Instruction(
        Opcode.ATTENTION,
        operands,
        frozenset(flag for flag in definition.flags if random.random() < 0.5),
        frozenset(e for e in Engine if e != Engine.MATRIX and random.random() < 0.5),
        frozenset(e for e in Engine if e != Engine.VECTOR and random.random() < 0.5),
    )


def random_other(random: np.random.Generator) -> Instruction:
    """Return an instruction that an engine runs."""
    known = [definition for definition in DEFINITIONS.values() if definition.engine is not None]
    definition = known[int(random.integers(len(known)))]
    operands = {name: int(random.integers(1 << 20)) for name in definition.operands}
    return Instruction(definition.opcode, operands)


def payloads(instruction: Instruction) -> list[int]:
    """Return what the sequencer sends for an instruction."""
    words = [word % (1 << IMMEDIATE_WIDTH) for word in instruction.pack()]
    words[0] = instruction.pack()[0]
    engine = instruction.definition.taker
    last = len(words) - 1
    return [
        pack(WORD, {"engine": engine, "first": index == 0, "last": index == last, "word": word})
        for index, word in enumerate(words)
    ]


def commands(instruction: Instruction) -> list[Instruction]:
    """Return the engines' commands of an instruction."""
    if instruction.opcode != Opcode.ATTENTION:
        return [instruction]
    operands = {
        name: instruction.operand(name).immediate for name in instruction.definition.operands
    }
    whole = Attention(
        operands=operands,
        flags=instruction.flags,
        pop=instruction.pop,
        push=instruction.push,
    )
    return list(expand(whole))


@cocotb.test()
async def attention_becomes_commands(dut: Any) -> None:
    """Random ATTENTION between random other instructions, under stalls."""
    given, random = parameters(), rng()
    program = [
        random_attention(random) if random.random() < 0.6 else random_other(random)
        for _ in range(given["instructions"])
    ]
    expected = [word for one in program for command in commands(one) for word in payloads(command)]
    await start_clock(dut)
    driver = StreamDriver(dut, "i", random, given["stall"])
    monitor = StreamMonitor(dut, "o", random, given["stall"])
    cocotb.start_soon(driver.send([word for one in program for word in payloads(one)]))
    received = await monitor.receive(len(expected))
    for place, (found, wanted) in enumerate(zip(received, expected, strict=True)):
        assert found == wanted, f"word {place} is {found:x}, not {wanted:x}"
    for _ in range(12):
        await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert not int(dut.busy.value)
    assert not int(dut.o__valid.value)


@cocotb.test()
async def blocks_are_fast(dut: Any) -> None:
    """A block's five commands take less than the products of a small one."""
    random = rng()
    await start_clock(dut)
    one = random_attention(random)
    words = [word for command in commands(one) for word in payloads(command)]
    blocks = sum(command.opcode == Opcode.SOFTMAX for command in commands(one))
    await StreamDriver(dut, "i", random).send(payloads(one))
    dut.o__ready.value = 1
    cycles = sent = before = 0
    while sent < len(words):
        await FallingEdge(dut.clk)
        assert int(dut.busy.value)
        sent += int(dut.o__valid.value)
        before += not sent
        cycles += 1
        await RisingEdge(dut.clk)
    assert before <= FIRST_CYCLES, f"the first command comes after {before} cycles"
    assert cycles <= BLOCK_CYCLES * blocks + 150, f"{blocks} blocks take {cycles} cycles"
