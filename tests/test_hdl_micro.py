"""The microcoded machine: small, and equal to the golden machine."""

import re

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.errors import RunError
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.arch.presets import PRESETS
from celosia.arch.registers import Cause
from celosia.fpga.memories import place_memories
from celosia.hdl.machine import machine_component
from celosia.sim.interpreter import Interpreter
from celosia.sim.micro_machine import MicroMachine
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.simulated import IcarusMachine, SimulatedMachine, VerilatorMachine
from celosia.tb.verify.random_programs import random_program
from tests.support.longer import longer

MICRO = PRESETS["micro"].replace(trace=True, mem_addr_width=17)
CONFIGS = {
    "micro": MICRO,
    "square": MICRO.replace(rows=4, requantizer=False),
    "odd": MICRO.replace(rows=5, cols=3, mem_width=8, acc_width=27),
    "narrow": MICRO.replace(rows=1, cols=2, mem_width=32, operand_width=5, b_transpose=False),
    "bare": MICRO.replace(
        rows=2,
        cols=5,
        activation=False,
        softmax=False,
        norm=False,
        requantizer=False,
    ),
}
MEMORY = 1 << 17


def compare(machine: SimulatedMachine, config: Config, seeds: range, steps: int) -> None:
    """Run random programs, one after the other, on a machine and on the golden one."""
    golden = Interpreter(config)
    for seed in seeds:
        program = random_program(config, np.random.default_rng(seed), steps=steps)
        reports = []
        for each in (golden, machine):
            each.write_memory(0, program.image)
            each.write_memory(program.result_addr, bytes(program.result_bytes))
            each.load_program(program.words)
            reports.append(each.start())
        wanted, report = reports
        assert report.signatures == wanted.signatures, f"seed {seed}"
        stored = (program.result_addr, program.result_bytes)
        assert machine.read_memory(*stored) == golden.read_memory(*stored), f"seed {seed}"


# The square one has softmax and norm without requantizer, as in test_cli_micro_board.py.
@pytest.mark.parametrize(
    ("name", "programs"),
    [
        *((name, 3) for name in CONFIGS if name != "square"),
        *longer(("square", 6), ("micro", 6), ("odd", 6), ("narrow", 6), ("bare", 6)),
    ],
)
def test_random_programs(name: str, programs: int) -> None:
    config = CONFIGS[name]
    machine = VerilatorMachine(config, memory_bytes=MEMORY, latency=3, interval=2)
    compare(machine, config, range(programs), steps=50)


def test_a_random_program_under_icarus() -> None:
    compare(IcarusMachine(MICRO, memory_bytes=MEMORY), MICRO, range(10, 11), steps=8)


def test_cycles_are_those_of_the_simulator_but_for_external_memory() -> None:
    program = random_program(MICRO, np.random.default_rng(3), steps=20)
    machine = VerilatorMachine(MICRO, memory_bytes=MEMORY, latency=1)
    model = MicroMachine(MICRO)
    cycles = []
    for each in (machine, model, machine, model):
        each.write_memory(0, program.image)
        each.load_program(program.words)
        cycles.append(each.start().cycles)
    first, before, again, expected = cycles
    clearing = 4 * MICRO.accumulators.depth
    # The second run finds what the first one left, in the model, too.
    assert clearing <= (first - again) - (before - expected) < clearing + 100
    assert expected < again < 1.02 * expected


def test_errors_are_told() -> None:
    machine = VerilatorMachine(MICRO, memory_bytes=MEMORY)
    machine.load_program([31])
    with pytest.raises(
        RuntimeError, match=r"^The run stopped: the program has an instruction that"
    ):
        machine.start()
    assert machine.read_register("STATUS") == 2 | Cause.INSTRUCTION << 4
    model = MicroMachine(MICRO)
    for opcode in (Opcode.HALT, Opcode.SET, Opcode.LOAD, Opcode.MATMUL, Opcode.DRAIN, Opcode.MAP):
        header, *rest = pack([Instruction(opcode)])
        reserved = [bit for bit in range(32) if DEFINITIONS[opcode].reserved >> bit & 1]
        for bit in reserved[:: max(1, len(reserved) // 4)]:
            for each in (machine, model):
                each.load_program([header | 1 << bit, *rest, 0])
                with pytest.raises(RuntimeError, match="program has an"):
                    each.start()
            assert machine.read_register("STATUS") == 2 | Cause.INSTRUCTION << 4
    machine.load_program([0])
    machine.start()
    assert machine.read_register("STATUS") == 0
    with pytest.raises(ValueError, match=r"^Recording a run needs engines, which micro, micro"):
        machine.record()


def test_a_program_that_runs_off_its_end_is_told() -> None:
    whole = pack([Instruction(Opcode.SET, {"register": 1, "value": 1})] * 4)
    machine, model = IcarusMachine(MICRO, memory_bytes=MEMORY), MicroMachine(MICRO)
    for words in (whole, whole[:-1]):
        pc = MICRO.control.program_depth - len(words)
        for each in (machine, model):
            each.load_program([0] * pc + words)
            with pytest.raises(RunError, match="program counter left the program memory"):
                each.start(pc)
        assert machine.read_register("STATUS") == 2 | Cause.PROGRAM << 4
        machine.load_program(pack([Instruction(Opcode.HALT)]))
        machine.start()
        assert machine.read_register("STATUS") == 0
        model = MicroMachine(MICRO)


@pytest.mark.parametrize(("family", "large"), [("ice40", 2), ("gowin", 0)])
def test_large_memories_hold_nothing_at_first(family: str, large: int) -> None:
    verilog = kept_verilog(machine_component(PRESETS["micro"]), "top")
    placed = place_memories(verilog, family)
    assert placed.count('ram_style = "huge"') == large
    module = re.compile(r"^module top_ByteRam.*?^endmodule", re.MULTILINE | re.DOTALL)
    assert all("initial" in text for text in module.findall(verilog))
    assert not any("initial" in text for text in module.findall(placed))
    assert module.sub("", placed) == module.sub("", verilog)
    assert place_memories(verilog, "ecp5") == verilog
