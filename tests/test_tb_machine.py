"""The fast simulations: memory, limits, errors, and agreement of both simulators."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.instruction import Instruction, Operand, pack, wrap
from celosia.arch.isa import Engine, Opcode
from celosia.arch.presets import PRESETS
from celosia.arch.registers import IDENTITY, REGISTER_MAP
from celosia.generators.verilog.verilog import to_verilog
from celosia.hdl.memory.ram import Ram
from celosia.sim.checker import check
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.fast_build import checked, interface
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulated import IcarusMachine, SimulatedMachine, VerilatorMachine
from celosia.tb.verify.random_programs import random_program
from tests.support.configurations import ODD

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
    timing = {"latency": 20, "interval": 3, "refresh_period": 50, "refresh_cycles": 11}
    for machine in (
        VerilatorMachine(CONFIG, **timing),
        IcarusMachine(CONFIG, memory_bytes=8192, **timing),
    ):
        assert run_case(machine) == wanted
        reports.append(machine.start())
        assert machine.read_register("ID") == IDENTITY
        machine.close()
    assert reports[0] == reports[1], "cycles and counters are the same, to the last one"
    # 5 rows of 37 bytes and 20 of 31, in words of 4.
    assert reports[0].counters["loaded"] == 5 * 10
    assert reports[0].counters["stored"] == 20 * 8
    # A word takes 3 cycles, and 39 of 50 are left of them.
    words = 5 * 10 + 20 * 8
    assert reports[0].cycles > 3 * words * 50 / 39 - 50


def test_external_memory_reaches_256_mb() -> None:
    """An address from 128 MiB on is a negative immediate, or comes from a register."""
    source, target = 0x0A00_0040, 0x0FFF_F000
    moved = {"dram_stride": 64, "sp_addr": 100, "sp_stride": 64, "m": 9, "row_bytes": 64}
    load = {**moved, "dram_addr": wrap(source)}
    store = {**moved, "dram_addr": Operand(wrap(target - 64), 3)}
    engines = frozenset({Engine.STORE}), frozenset({Engine.LOAD})
    program = pack(
        [
            Instruction(Opcode.SET, {"register": 3, "value": 64}),
            Instruction(Opcode.LOAD, load, push=engines[0]),
            Instruction(Opcode.STORE, store, pop=engines[1]),
            Instruction(Opcode.HALT),
        ]
    )
    check(program, CONFIG)
    signatures = []
    for machine in (Interpreter(CONFIG), VerilatorMachine(CONFIG)):
        machine.write_memory(source, DATA)
        machine.load_program(program)
        signatures.append(machine.start().signatures)
        assert machine.read_memory(target, 576) == DATA[:576]
    assert signatures[0] == signatures[1]


def test_refresh_takes_its_share_of_the_cycles() -> None:
    cycles = {}
    for period, refresh in ((0, 0), (40, 10), (40, 20)):
        machine = IcarusMachine(
            CONFIG, memory_bytes=8192, refresh_period=period, refresh_cycles=refresh
        )
        machine.load_program(PROGRAM)
        cycles[refresh] = machine.start().cycles
        machine.close()
    moving = 5 * 10 + 20 * 8
    assert cycles[0] + moving / 3 - 20 < cycles[10] < cycles[0] * 4 / 3 + 20
    assert cycles[0] + moving - 40 < cycles[20] < cycles[0] * 2 + 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latency": -1}, "Memory timing latency must be from 0 to 100000, not -1"),
        ({"interval": 0}, "Memory timing interval must be from 1 to 100000, not 0"),
        (
            {"refresh_period": 9, "refresh_cycles": 9},
            "Memory timing refresh_cycles must be less than refresh_period, but refresh_cycles is "
            "9 and refresh_period is 9",
        ),
        ({"refresh_cycles": 2}, "Memory timing refresh_cycles = 2 needs a refresh_period"),
    ],
)
def test_a_memory_that_never_answers_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MemoryTiming(**changes)


def test_refresh_is_at_the_end_of_each_period() -> None:
    timing = MemoryTiming(refresh_period=5, refresh_cycles=2)
    assert [timing.refreshing(cycle) for cycle in range(10)] == 2 * [*[False] * 3, True, True]
    assert not MemoryTiming().refreshing(7)


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
    with pytest.raises(
        RuntimeError, match=r"^The run stopped: the program has an instruction that"
    ):
        machine.start()
    machine.close()


def test_bit_positions_are_those_of_the_ports() -> None:
    ports = interface(PRESETS["odd"])
    assert ports["BURST_ADDR_LSB"] == 0
    assert ports["BURST_LAST_LSB"] == PRESETS["odd"].memory.addr_width
    assert ports["WRITE_WIDTH"] == 32 + 4
    assert ports["TRACE_WIDTH"] == ports["TRACE_DATA_LSB"] + ports["TRACE_DATA_WIDTH"]
    assert REGISTER_MAP["STATUS"].addr < 256


BEYOND = """
module harness;
  reg clk = 0, rst = 0, write_en = 1;
  reg [2:0] addr = 6;
  top ram(.clk(clk), .rst(rst), .write_en(write_en), .write_addr(addr), .write_data(8'd9),
          .read_en(1'b1), .read_addr(addr), .read_data());
  initial begin
    repeat (2) begin
      #1 clk = 1;
      #1 clk = 0;
      addr = addr + 1;
    end
  end
endmodule
"""


def test_a_write_beyond_a_memory_is_an_error(tmp_path: Path) -> None:
    verilog = checked(to_verilog(Ram(8, 7), "top"))
    (tmp_path / "ram.v").write_text(verilog + BEYOND, encoding="utf-8")
    program = tmp_path / "ram.vvp"
    subprocess.run(["iverilog", "-g2005", "-o", program, tmp_path / "ram.v"], check=True)
    done = subprocess.run(["vvp", "-n", program], check=True, capture_output=True, text=True)
    assert re.fullmatch(
        r"error: harness\.ram\S* writes word 7 of 7\n(?:.*\$finish.*\n)?", done.stdout
    )
    assert checked(to_verilog(Ram(8, 8), "top")) == to_verilog(Ram(8, 8), "top")


@pytest.mark.slow
def test_depths_may_be_anything_under_icarus() -> None:
    """Where a word beyond the last one of a memory is read and used, results are unknown."""
    program = random_program(ODD, np.random.default_rng(0), 14, alone=True)
    results = []
    for machine in (Interpreter(ODD), IcarusMachine(ODD, memory_bytes=1 << 15)):
        machine.write_memory(0, program.image)
        machine.load_program(program.words)
        signatures = machine.start().signatures
        results.append((signatures, machine.read_memory(program.result_addr, program.result_bytes)))
    assert results[0] == results[1]
