"""The fast simulations: memory, limits, errors, and agreement of both simulators."""

import numpy as np
import pytest

from arch.config import PRESETS
from arch.isa import Engine, Instruction, Opcode, pack
from arch.registers import IDENTITY, REGISTER_MAP
from sim.interpreter import Interpreter
from tb.fast_build import interface
from tb.machine import IcarusMachine, SimulatedMachine, VerilatorMachine

CONFIG = PRESETS["tiny"].replace(trace=True)

PROGRAM = pack(
    [
        Instruction(
            Opcode.LOAD,
            {
                "dram_addr": 64,
                "dram_stride": 64,
                "sp_addr": 501,
                "sp_stride": 50,
                "m": 5,
                "row_bytes": 37,
            },
            push=frozenset({Engine.VECTOR}),
        ),
        Instruction(
            Opcode.MAP,
            {"i_addr": 501, "i_stride": 50, "o_addr": 1001, "o_stride": 40, "m": 5, "n": 9},
            frozenset({"per_tensor"}),
            frozenset({Engine.LOAD}),
            frozenset({Engine.STORE}),
        ),
        Instruction(
            Opcode.STORE,
            {
                "dram_addr": 4096,
                "dram_stride": 32,
                "sp_addr": 480,
                "sp_stride": 64,
                "m": 20,
                "row_bytes": 31,
            },
            pop=frozenset({Engine.VECTOR}),
        ),
        Instruction(Opcode.HALT),
    ]
)
DATA = np.random.default_rng(5).integers(0, 256, 1021, np.uint8).tobytes()


def run_case(machine: SimulatedMachine | Interpreter) -> tuple[bytes, list[int]]:
    machine.write_memory(13, DATA)
    assert machine.read_memory(13, len(DATA)) == DATA
    assert machine.read_memory(15, 3) == DATA[2:5]
    assert machine.read_memory(99, 0) == b""
    machine.load_program(PROGRAM)
    signatures = machine.start().signatures
    again = machine.start()
    assert again.signatures == signatures
    assert len(signatures) == 1
    return machine.read_memory(4000, 1000), signatures


@pytest.mark.slow
def test_both_simulators_equal_the_golden_machine_and_each_other() -> None:
    wanted = run_case(Interpreter(CONFIG))
    reports = []
    for machine in (
        VerilatorMachine(CONFIG, latency=20, interval=3),
        IcarusMachine(CONFIG, memory_bytes=8192, latency=20, interval=3),
    ):
        assert run_case(machine) == wanted
        reports.append(machine.start())
        assert machine.read_register("ID") == IDENTITY
        machine.close()
    assert reports[0] == reports[1], "cycles and counters are the same, to the last one"
    # 5 rows of 37 bytes and 20 of 31, in words of 4.
    assert reports[0].counters["loaded"] == 5 * 10
    assert reports[0].counters["stored"] == 20 * 8
    assert reports[0].cycles > 3 * (5 * 10), "a word takes 3 cycles"


def test_what_goes_wrong_is_told() -> None:
    machine = IcarusMachine(CONFIG, memory_bytes=8192, limit=50)
    with pytest.raises(ValueError, match=r"^Program has 1025 words, but program_depth is 1024$"):
        machine.load_program([0] * 1025)
    machine.load_program(PROGRAM)
    with pytest.raises(RuntimeError, match=r"^The run did not halt within 50 cycles$"):
        machine.start()
    machine.close()
    machine = IcarusMachine(CONFIG, memory_bytes=2048)
    machine.load_program(PROGRAM)
    with pytest.raises(
        RuntimeError,
        match=r"^The simulation failed: error: outside external memory: address 0x1000$",
    ):
        machine.start()
    machine.close()
    machine = IcarusMachine(CONFIG, memory_bytes=2048)
    machine.load_program([0x1F])
    with pytest.raises(RuntimeError, match=r"^The run stopped: the program has an unknown instr"):
        machine.start()
    machine.close()


def test_bit_positions_are_those_of_the_ports() -> None:
    found = interface(PRESETS["odd"])
    assert found["BURST_ADDR_LSB"] == 0
    assert found["BURST_LAST_LSB"] == PRESETS["odd"].mem_addr_width
    assert found["WRITE_WIDTH"] == 32 + 4
    assert found["TRACE_WIDTH"] == found["TRACE_DATA_LSB"] + found["TRACE_DATA_WIDTH"]
    assert REGISTER_MAP["STATUS"].addr < 256
