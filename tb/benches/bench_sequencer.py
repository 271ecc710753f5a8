"""Bench of the sequencer: for random programs it must send the golden model's command words.

Parameters: ``config``, the configuration's fields that differ from the preset ``small``;
``programs``, the number of programs; ``stall``, the probability in each cycle that the stream ``o``
pauses.
"""

from itertools import islice, product
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, Operand, pack
from celosia.arch.isa import (
    COUNT_WIDTH,
    DEFINITIONS,
    IMMEDIATE_WIDTH,
    LOOP_LEVELS,
    REGISTERS,
    WORD_WIDTH,
    Engine,
    Opcode,
)
from celosia.arch.presets import PRESETS
from celosia.arch.registers import Cause
from celosia.hdl.ports import WORD
from celosia.sim.flow import run
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import unpack

SENT_MAX = 300


def random_operand(random: np.random.Generator) -> Operand:
    """Return a random operand of an instruction.

    The operand has a random immediate. Often it also names a register; the operand's value is then
    the sum of the immediate and the register's value.
    """
    bound = 1 << (IMMEDIATE_WIDTH - 1)
    register = int(random.integers(REGISTERS)) if random.random() < 0.6 else 0
    return Operand(int(random.integers(-bound, bound)), register)


def random_block(config: Config, random: np.random.Generator, level: int) -> list[Instruction]:
    """Return random instructions with nested loops, some of the loops empty.

    ``level`` is the number of loops around the block; loops are nested at most ``LOOP_LEVELS``
    deep.
    """
    block: list[Instruction] = []
    for _ in range(int(random.integers(4 if level else 8))):
        kind = random.random()
        if kind < 0.35 and level < LOOP_LEVELS:
            count = Operand(int(random.integers(1, 4)))
            body = random_block(config, random, level + 1)
            block.append(Instruction(Opcode.LOOP, {"count": count}))
            block += [*body, Instruction(Opcode.ENDLOOP)]
        elif kind < 0.6:
            number = int(random.integers(1, REGISTERS))
            value = random_operand(random)
            block.append(Instruction(Opcode.SET, {"register": number, "value": value}))
        else:
            block.append(random_instruction(config, random))
    return block


def deepest_loops() -> list[Instruction]:
    """Return instructions with the deepest nest of loops, and then a loop of 260 iterations.

    Each of the 260 iterations adds 3 to register 1. The instruction PARAMS after the loop has an
    operand that depends on register 1. If the sequencer runs a wrong number of iterations, the
    operand is wrong.
    """
    loops = [Instruction(Opcode.LOOP, {"count": 2 + level % 2}) for level in range(LOOP_LEVELS)]
    end = Instruction(Opcode.ENDLOOP)
    count = Instruction(Opcode.SET, {"register": 1, "value": Operand(3, 1)})
    long = [Instruction(Opcode.LOOP, {"count": 260}), count, end]
    counted = Instruction(Opcode.PARAMS, {"n": Operand(5, 1)})
    return [*loops, counted, *[end] * LOOP_LEVELS, *long, counted]


def random_instruction(config: Config, random: np.random.Generator) -> Instruction:
    """Return an engine's instruction with random opcode, operands, flags and dependency tokens."""
    known = [definition for definition in config.instructions if definition.engine is not None]
    definition = known[int(random.integers(len(known)))]
    return Instruction(
        definition.opcode,
        {name: random_operand(random) for name in definition.operands},
        frozenset(flag for flag in definition.flags if random.random() < 0.5),
        frozenset(e for e in Engine if e != definition.engine and random.random() < 0.5),
        frozenset(e for e in Engine if e != definition.engine and random.random() < 0.5),
    )


def single(bit: int) -> int:
    """Return the signed 28-bit immediate in which only the bit ``bit`` is set."""
    return 1 << bit if bit < IMMEDIATE_WIDTH - 1 else -1 << bit


def expected_words(words: list[int], start: int, registers: list[int]) -> list[dict[str, int]]:
    """Execute a program, and return the command words that the sequencer must send for it.

    At most ``SENT_MAX`` commands are executed. A word is a dictionary of ``engine`` (the receiver),
    ``word`` (the value), ``first`` and ``last`` (1 for a command's first and last word). The list
    ``registers`` gets the registers' final values.
    """
    sent: list[dict[str, int]] = []
    for step in islice(run(words, start, registers), SENT_MAX):
        values = [words[step.address], *step.operands.values()]
        for index, value in enumerate(values):
            sent.append(
                {
                    "engine": int(step.engine),
                    "first": int(index == 0),
                    "last": int(index == len(values) - 1),
                    "word": value if index == 0 else value % (1 << IMMEDIATE_WIDTH),
                }
            )
    return sent


class Host:
    """Host of the sequencer: writes programs and registers, starts runs, collects command words."""

    def __init__(self, dut: Any, random: np.random.Generator, stall: float):
        self.dut, self.random, self.stall = dut, random, stall

    async def write(self, kind: str, place: str, values: dict[int, int]) -> None:
        """Write ``values``, a dictionary from address to value, to program memory or registers.

        ``kind`` and ``place`` are parts of the ports' names: ``program`` and ``addr`` for program
        memory, ``register`` and ``index`` for registers. Each value takes one cycle.
        """
        for address, value in values.items():
            getattr(self.dut, f"{kind}_en").value = 1
            getattr(self.dut, f"{kind}_{place}").value = address
            getattr(self.dut, f"{kind}_data").value = value
            await RisingEdge(self.dut.clk)
        getattr(self.dut, f"{kind}_en").value = 0

    async def run(self, start: int, limit: int) -> list[dict[str, int]]:
        """Run the program at the word address ``start``; return the command words that are sent.

        Each word is a dictionary: ``engine``, ``word``, ``first`` and ``last``. The run must end
        within ``limit`` cycles. In random cycles the host requests a further start, which the
        sequencer must ignore.
        """
        sent: list[dict[str, int]] = []
        halts = False
        await self.start(start)
        for _ in range(limit):
            word = await self.cycle()
            if not int(self.dut.busy.value):
                assert halts or int(self.dut.error.value), "the program halted before all was idle"
                return sent
            halts = bool(int(self.dut.idle.value) and int(self.dut.halted.value))
            assert not int(self.dut.halted.value and self.dut.o__valid.value), "halted too early"
            sent += [word] if word else []
            self.dut.start.value = int(self.random.random() < 0.1)
            await RisingEdge(self.dut.clk)
            self.dut.start.value = 0
            self.dut.idle.value = int(self.random.random() < 0.1)
        raise AssertionError(f"busy after {limit} cycles")

    async def start(self, start: int) -> None:
        """Start a run of the sequencer at the word address ``start`` of the program."""
        self.dut.pc.value = start
        self.dut.start.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.start.value = 0

    async def cycle(self) -> dict[str, int] | None:
        """Wait for this cycle's falling edge; return the command word sent in this cycle, or None.

        The stream ``o`` pauses with probability ``stall``. The input ``pc`` (start address of a
        run) gets a random value in each cycle, since the sequencer must ignore ``pc`` during a run.
        """
        dut = self.dut
        dut.pc.value = int(self.random.integers(1 << len(dut.pc)))
        dut.o__ready.value = int(self.random.random() >= self.stall)
        await FallingEdge(dut.clk)
        if not (int(dut.o__valid.value) and int(dut.o__ready.value)):
            return None
        word = unpack(WORD, int(dut.o__payload.value))
        if not word["first"]:
            word["word"] %= 1 << IMMEDIATE_WIDTH
        return word


@cocotb.test()
async def programs_mean_what_they_say(dut: Any) -> None:
    """For random programs, the sequencer sends the words that :func:`expected_words` returns.

    The values and the order of these command words must be the same.
    """
    settings, random = parameters(), rng()
    config = PRESETS["small"].replace(**settings["config"])
    host = Host(dut, random, settings["stall"])
    await start_clock(dut, rng())
    registers = [0, *random.integers(1 << IMMEDIATE_WIDTH, size=REGISTERS - 1).tolist()]
    dut.scrub.value = 1
    await RisingEdge(dut.clk)
    dut.scrub.value = 0
    await host.write("register", "index", dict(enumerate(registers[1:], 1)))
    done = 0
    while done < settings["programs"]:
        block = random_block(config, random, 0) if done else [*deepest_loops(), *deepest_loops()]
        program = pack([*block, Instruction(Opcode.HALT)])
        room = config.control.program_depth - len(program)
        start = int(random.integers(room + 1)) if room >= 0 else 0
        tried = list(registers)
        words = [0] * start + program
        if room < 0 or len(expected := expected_words(words, start, tried)) >= SENT_MAX:
            continue
        number = int(random.integers(1, REGISTERS))
        value = int(random.integers(1 << IMMEDIATE_WIDTH))
        registers[number] = value
        expected = expected_words(words, start, registers)
        # A register that is written goes ahead of register 0, which the host cannot write.
        dut.scrub.value = done % 2
        await host.write("register", "index", {number: value, 0: value})
        dut.scrub.value = 0
        await host.write("program", "addr", {start + i: w for i, w in enumerate(program)})
        sent = await host.run(start, 40 * (len(expected) + 100))
        assert sent == expected
        assert not int(dut.error.value)
        done += 1


@cocotb.test()
async def long_loops_run_on(dut: Any) -> None:
    """A loop of 2^n + m iterations does not end after m iterations.

    The test runs such loops for m = 1 and 2, and for each n from 1 to the highest bit of the loop
    count. The loop is at a random level of nested loops. A sequencer that ignores bit n of the
    count would end the loop after m iterations.
    """
    settings, random = parameters(), rng()
    config = PRESETS["small"].replace(**settings["config"])
    host = Host(dut, random, settings["stall"])
    await start_clock(dut)
    for bit, more in product(range(1, COUNT_WIDTH), (1, 2)):
        place = int(random.integers(LOOP_LEVELS))
        counts = [1] * place + [(1 << bit) + more]
        counts += random.integers(1, 4, LOOP_LEVELS - len(counts)).tolist()
        loops = [Instruction(Opcode.LOOP, {"count": count}) for count in counts]
        end = Instruction(Opcode.ENDLOOP)
        params = Instruction(Opcode.PARAMS, {"n": 5})
        program = pack([*loops, params, *[end] * LOOP_LEVELS, Instruction(Opcode.HALT)])
        start = int(random.integers(config.control.program_depth - len(program) + 1))
        await host.write("program", "addr", {start + i: word for i, word in enumerate(program)})
        # Three turns where all counts inside are 3, or all turns.
        words = DEFINITIONS[Opcode.PARAMS].words * 3 ** (LOOP_LEVELS - place)
        wanted = expected_words([0] * start + program, start, [0] * REGISTERS)[:words]
        sent: list[dict[str, int]] = []
        await host.start(start)
        for _ in range(40 * words):
            word = await host.cycle()
            sent += [word] if word else []
            await RisingEdge(dut.clk)
            if len(sent) == len(wanted):
                break
        assert sent == wanted, counts
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        await FallingEdge(dut.clk)
        assert not int(dut.busy.value)
        await RisingEdge(dut.clk)


@cocotb.test()
async def words_follow_each_other(dut: Any) -> None:
    """A loop of n instruction words takes n + 1 cycles per iteration.

    The n words include the word of ENDLOOP. The bench accepts each command word in the cycle in
    which it is offered.
    """
    settings = parameters()
    config = PRESETS["small"].replace(**settings["config"])
    host = Host(dut, rng(), 0.0)
    await start_clock(dut)
    load = Instruction(Opcode.LOAD, {"m": 1})
    end = [Instruction(Opcode.ENDLOOP), Instruction(Opcode.HALT)]
    cycles = []
    for count in (1, 11):
        program = pack([Instruction(Opcode.LOOP, {"count": count}), load, *end])
        assert len(program) <= config.control.program_depth
        await host.write("program", "addr", dict(enumerate(program)))
        dut.idle.value = 1
        dut.o__ready.value = 1
        dut.pc.value = 0
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        cycles.append(0)
        await FallingEdge(dut.clk)
        while int(dut.busy.value):
            cycles[-1] += 1
            await FallingEdge(dut.clk)
        await RisingEdge(dut.clk)
    words = DEFINITIONS[Opcode.LOAD].words + 1
    assert cycles[1] - cycles[0] == 10 * (words + 1)


@cocotb.test()
async def wrong_programs_stop(dut: Any) -> None:
    """An illegal instruction word stops the run, and the sequencer reports the expected cause.

    The sequencer sends no command word of instructions after the illegal word. The outputs
    ``error`` and ``cause`` stay the same after the run. A legal program then runs correctly.
    """
    settings = parameters()
    config = PRESETS["small"].replace(**settings["config"])
    random = rng()
    host = Host(dut, random, settings["stall"])
    await start_clock(dut)
    load, halt = Instruction(Opcode.LOAD, {"m": 3}), Instruction(Opcode.HALT)
    loop, end = Instruction(Opcode.LOOP, {"count": 1}), Instruction(Opcode.ENDLOOP)
    unknown = max(Opcode) + 1
    wrong = [
        (Cause.INSTRUCTION, [*pack([loop, loop, loop]), unknown]),
        (Cause.LOOP, pack([loop, end, end])),
        (Cause.LOOP, pack([loop] * (LOOP_LEVELS + 1) + [end] * (LOOP_LEVELS + 1))),
        (Cause.LOOP, pack([Instruction(Opcode.LOOP, {"count": 0}), end])),
        (Cause.LOOP, pack([Instruction(Opcode.LOOP, {"count": -1}), end])),
        (Cause.REGISTER, pack([Instruction(Opcode.SET, {"register": 0, "value": 1})])),
        (Cause.REGISTER, pack([Instruction(Opcode.SET, {"register": REGISTERS, "value": 1})])),
    ]
    known = {definition.opcode: definition for definition in config.instructions}
    wrong += [(Cause.INSTRUCTION, [code]) for code in range(1 << 5) if code not in known]
    wrong += [
        (Cause.LOOP, pack([Instruction(Opcode.LOOP, {"count": single(bit)}), end]))
        for bit in range(COUNT_WIDTH, IMMEDIATE_WIDTH)
    ]
    wrong += [
        (Cause.REGISTER, pack([Instruction(Opcode.SET, {"register": single(bit), "value": 1})]))
        for bit in range((REGISTERS - 1).bit_length(), IMMEDIATE_WIDTH)
    ]
    for opcode, definition in known.items():
        header, *operands = Instruction(opcode).pack()
        bits = [bit for bit in range(WORD_WIDTH) if definition.reserved >> bit & 1]
        wrong += [(Cause.INSTRUCTION, [header | 1 << bit, *operands]) for bit in bits]
    wrong += [(Cause.PROGRAM, []), (Cause.PROGRAM, pack([end]))]
    for number, (cause, words) in enumerate(wrong):
        # The next word is wrong, too, which comes too late to be the cause.
        behind = [unknown] if cause == Cause.LOOP else pack([end])
        program = pack([load]) + words + behind + pack([load, halt])
        begin, turns = 0, 1
        if cause == Cause.PROGRAM:  # the last word is followed by none, unless a loop goes back
            turns = 1 + len(words)
            program = pack([Instruction(Opcode.LOOP, {"count": turns}), load]) + words
            begin = config.control.program_depth - len(program)
        await host.write("program", "addr", {begin + i: word for i, word in enumerate(program)})
        sent = await host.run(begin, 1000)
        assert int(dut.error.value), f"no error at {words}"
        assert int(dut.cause.value) == cause, f"not the cause of {words}"
        assert len(sent) == turns * DEFINITIONS[Opcode.LOAD].words
        for _ in range(4):
            await host.cycle()
            assert int(dut.error.value), "the error does not stay"
            assert int(dut.cause.value) == cause, "the cause does not stay"
            await RisingEdge(dut.clk)
        if number % 8 and number >= 7:
            continue
        # As many loops as there can be begin again, whatever was open.
        nested = pack([loop] * LOOP_LEVELS + [load] + [end] * LOOP_LEVELS + [halt])
        await host.write("program", "addr", dict(enumerate(nested)))
        sent = await host.run(0, 1000)
        assert not int(dut.error.value), f"loops stay open behind {words}"
        assert sent == expected_words(nested, 0, [0] * REGISTERS)
        await host.write("program", "addr", dict(enumerate(pack([load, halt]))))
        sent = await host.run(0, 1000)
        assert not int(dut.error.value)
        assert sent == expected_words(pack([load, halt]), 0, [0] * REGISTERS)
