"""The microcoded machine's core and its microcode, without a circuit."""

import numpy as np
import pytest

from celosia.arch.assembler import assemble
from celosia.arch.instruction import pack, unpack
from celosia.arch.isa import Opcode
from celosia.arch.micro.assembler import Microcode
from celosia.arch.micro.isa import MULTIPLY_CYCLES
from celosia.arch.presets import PRESETS
from celosia.sim.interpreter import Interpreter
from celosia.sim.micro_core import MicroCore
from celosia.sim.micro_decode import signed
from celosia.sim.micro_machine import MicroMachine
from celosia.tb.verify.random_programs import random_program

CONFIG = PRESETS["micro"]
CORNERS = (0, 1, 2, 31, 32, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


def pairs() -> list[tuple[int, int]]:
    rng = np.random.default_rng(2)
    random = [(int(a), int(b)) for a, b in rng.integers(0, 1 << 32, (50, 2))]
    return random + [(a, b) for a in CORNERS for b in CORNERS]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ADD", lambda a, b: a + b),
        ("SUB", lambda a, b: a - b),
        ("AND", lambda a, b: a & b),
        ("OR", lambda a, b: a | b),
        ("MIN", lambda a, b: a if signed(a) < signed(b) else b),
        ("MAX", lambda a, b: b if signed(a) < signed(b) else a),
        ("SLTU", lambda a, b: a < b),
        ("SLL", lambda a, b: a << (b & 31)),
        ("SRL", lambda a, b: a >> (b & 31)),
        ("SRA", lambda a, b: signed(a) >> (b & 31)),
    ],
)
def test_operations_on_two_values(name, expected) -> None:
    a = Microcode(f"{name} r10, r8, r9")
    core = MicroCore(CONFIG, a.words())
    for left, right in pairs():
        core.registers[8], core.registers[9], core.address = left, right, 0
        core.step()
        assert core.registers[10] == int(expected(left, right)) % (1 << 32), (left, right)


def test_products() -> None:
    a = Microcode("MUL r8, r9\nLOW r10\nMIDDLE r11")
    core = MicroCore(CONFIG, a.words())
    for left, right in pairs():
        core.registers[8], core.registers[9], core.address = left, right, 0
        before = core.cycles
        core.run(a.length)
        assert core.cycles - before == MULTIPLY_CYCLES + 2
        product = signed(left) * signed(right)
        assert core.registers[10:12] == [product % (1 << 32), (product >> 31) % (1 << 32)]


def test_loops_and_registers() -> None:
    machine = MicroMachine(CONFIG)
    machine.set_register(2, -70)
    machine.load_program(
        pack(
            assemble(
                "HALT\nSET register=1 value=64+r2\nLOOP count=3\nLOOP count=2\n"
                "SET register=1 value=-5+r1\nENDLOOP\nENDLOOP\nSET register=15 value=7+r1\nHALT\n"
            )
        )
    )
    machine.start(1)
    registers = machine.core.data[machine._map.registers :][:16]
    assert [signed(value) for value in registers] == [0, -36, -70, *[0] * 12, -29]


@pytest.mark.parametrize("text", ["LOOP count=2\n" * 5, "ENDLOOP\n"])
def test_what_cannot_run_fails(text: str) -> None:
    machine = MicroMachine(CONFIG)
    machine.load_program(pack(assemble(text)))
    with pytest.raises(RuntimeError, match=r"^The program has an unknown instruction, or loops"):
        machine.start()


@pytest.mark.parametrize("mem_width", [8, 16, 32])
@pytest.mark.parametrize(("rows", "cols"), [(4, 4), (5, 3), (1, 2), (2, 4), (2, 3)])
def test_movers_and_products_do_what_the_golden_machine_does(mem_width, rows, cols) -> None:
    config = CONFIG.replace(mem_width=mem_width, rows=rows, cols=cols, mem_addr_width=17)
    others = {Opcode.DRAIN, Opcode.MAP, Opcode.SOFTMAX, Opcode.NORM}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        program = random_program(config, rng, steps=60)
        words = pack(
            [
                instruction
                for instruction in unpack(program.words)
                if instruction.opcode not in others
            ]
        )
        golden, machine = Interpreter(config), MicroMachine(config)
        for each in (golden, machine):
            each.write_memory(0, program.image)
            each.load_program(words)
            each.start()
        assert machine.core.dram.tobytes() == golden.dram.tobytes(), seed
        assert bytes(machine.core.sp) == golden.sp.tobytes(), seed
        assert machine.core.acc == golden.acc.tolist(), seed


def test_four_sums_become_bytes_in_19_cycles() -> None:
    machine, cycles = MicroMachine(CONFIG), []
    for columns in (40, 44):
        machine.load_program(pack(assemble(f"DRAIN m=1 n={columns} acc_stride=1\nHALT\n")))
        cycles.append(machine.start().cycles)
    assert cycles[1] - cycles[0] == 19


@pytest.mark.parametrize("zero", [-32768, -3, 0, 5, 32767])
@pytest.mark.parametrize("more", [0, 1])
def test_bounds_say_whether_scale_moves_to_the_next_parameters(zero: int, more: int) -> None:
    core = MicroCore(CONFIG, Microcode("BOUNDS r8, r9\nSCALE r10, r11, 3").words())
    core.registers[8:12] = [0x7FFF_8000, (zero & 0xFFFF) + ((zero >> 16) + more << 16), 64, 0]
    core.registers[9] %= 1 << 32
    for _ in range(2):
        core.step()
    assert core.registers[10] == 64 + 3 * more
