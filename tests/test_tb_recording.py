"""Recorded runs: each command with its operands, in time, and sums that are the counters'."""

import itertools
import re

import numpy as np
import pytest

from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Engine, Opcode
from celosia.arch.presets import PRESETS
from celosia.arch.registers import ARRAY_CAUSES
from celosia.sim import flow
from celosia.tb.machine.recording import Recording, recording
from celosia.tb.machine.simulated import IcarusMachine, SimulatedMachine, VerilatorMachine
from celosia.tb.verify.random_programs import random_program

CONFIG = PRESETS["tiny"].replace(trace=True)
WINDOW = 100


def run_case(machine: SimulatedMachine, seed: int, steps: int = 15) -> list[Recording]:
    """Run a random program twice, recorded, and check both recordings against the counters."""
    print(f"seed {seed}")
    program = random_program(CONFIG.replace(mem_addr_width=13), np.random.default_rng(seed), steps)
    machine.write_memory(0, program.image)
    machine.load_program(program.words)
    machine.start()  # masks and tables stay from run to run, and masked rows take no time
    machine.record(WINDOW)
    wanted = list(flow.run(program.words))
    for turn in range(2):
        report = machine.start()
        recorded = machine.recordings[turn]
        assert [(c.opcode, c.flags, c.operands) for c in recorded.commands] == [
            (step.opcode, step.flags, step.operands) for step in wanted
        ]
        assert recorded.cycles == report.cycles
        for name in ("loaded", "stored"):
            assert sum(recorded.sums[name]) == report.counters[name]
        for name in ARRAY_CAUSES:
            sums = recorded.sums[name.lower()]
            assert len(sums) == -(-report.cycles // WINDOW)
            assert max(sums) <= WINDOW
            assert sum(sums) == report.counters[f"array_{name.lower()}"]
        _check_order(recorded, report.counters)
    return machine.recordings


def _check_order(recorded: Recording, counters: dict[str, int]) -> None:
    for engine in Engine:
        commands = [command for command in recorded.commands if command.engine == engine]
        for command in commands:
            assert command.sent < command.offered <= command.begin < command.end <= recorded.cycles
        for before, after in itertools.pairwise(commands):
            assert before.end <= after.begin
        waits = [wait for wait in recorded.waits if wait.engine == engine]
        for wait in waits:
            assert wait.begin < wait.end <= recorded.cycles
            assert engine not in wait.lacking
        # An engine that only waits has no command in work; it may also wait beside one.
        beside = sum(wait.end - wait.begin for wait in waits)
        assert beside >= counters[f"wait_{engine.name.lower()}"]


def test_icarus_notes_what_runs() -> None:
    machine = IcarusMachine(CONFIG, memory_bytes=8192, latency=20)
    first, second = run_case(machine, seed=3)
    assert first == second
    machine.record(0)
    machine.start()
    assert len(machine.recordings) == 2
    machine.close()


def test_a_product_waits_for_a_store_where_its_word_says_so() -> None:
    """No hazard is between the two, so that no program made by the compiler lets one wait."""
    operands = {"m": 8, "row_bytes": 64, "dram_stride": 64, "sp_stride": 64}
    store = Instruction(Opcode.STORE, operands, push=frozenset({Engine.MATRIX}))
    sizes = {"m": 1, "k": 1, "n": 1}
    product = Instruction(Opcode.MATMUL, sizes, pop=frozenset({Engine.STORE}))
    machine = IcarusMachine(CONFIG, memory_bytes=8192, latency=20)
    machine.load_program(pack([store, product, Instruction(Opcode.HALT)]))
    machine.record(WINDOW)
    report = machine.start()
    stored, multiplied = machine.recordings[0].commands
    (wait,) = machine.recordings[0].waits
    assert (wait.engine, wait.lacking) == (Engine.MATRIX, frozenset({Engine.STORE}))
    assert stored.end <= wait.end <= multiplied.begin
    assert report.counters["array_wait_store"] == wait.end - wait.begin > 8 * 64 // 4
    machine.close()


@pytest.mark.slow
def test_both_simulators_note_the_same() -> None:
    recordings = []
    for machine in (
        VerilatorMachine(CONFIG, latency=20),
        IcarusMachine(CONFIG, memory_bytes=8192, latency=20),
    ):
        recordings.append(run_case(machine, seed=4))
        machine.close()
    assert recordings[0] == recordings[1]


def test_what_cannot_be_recorded_is_refused() -> None:
    machine = IcarusMachine(CONFIG, memory_bytes=8192)
    machine.config = PRESETS["tiny"]
    message = "Recording a run needs the field trace, which tiny lacks"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        machine.record()
    machine.close()
    with pytest.raises(RuntimeError, match=r"^The LOAD engine was sent 0 commands, was offered 1"):
        recording([(5, 1 << 44)], 10, 5)
