"""What a machine is tested by, against the circuit itself; and what its programs may rely on."""

import numpy as np
import pytest

from arch.config import Config
from arch.instruction import Instruction, pack
from arch.isa import Engine, Opcode
from arch.presets import PRESETS
from generators.program.tokens import insert_tokens
from sim.interpreter import Interpreter
from tb.machine import VerilatorMachine
from tb.selftest import selftest

CONFIG = PRESETS["tiny"].replace(
    lanes=1, program_depth=1024, max_row=16, argmax=True, fused=True, rotary=False
)
MEMORY = 1 << 14


@pytest.mark.parametrize("registered", [False, True])
def test_units_pass(registered: bool) -> None:
    config = CONFIG.replace(registered=registered)
    machine = VerilatorMachine(config, memory_bytes=MEMORY, latency=4)
    found = selftest(machine, config, MEMORY, programs=4, seed=6)
    machine.close()
    assert found["mismatches"] == 0
    units = {name: unit["result"] for name, unit in found["units"].items()}
    assert set(units.values()) == {"pass"}, units


def reading_programs(config: Config, bits: int) -> dict[str, list[Instruction]]:
    """Return what each reader of masks does with bit ``bits - 1``, straight after it is written."""
    row = config.mem_bytes
    mask = Instruction(Opcode.MASK, {"i_addr": 0, "n": bits})
    begin = Instruction(
        Opcode.LOAD, {"dram_stride": 64, "sp_stride": 64, "m": 4, "row_bytes": 4 * row}
    )
    masked = {"m": 1, "row_bytes": row, "mask": bits - 1}
    move = {"dram_addr": 1024, "sp_addr": 128, **masked}
    product = {"a_addr": 0, "b_addr": 0, "m": 1, "k": 1, "n": 1}
    drain = Instruction(Opcode.DRAIN, {"m": 1, "n": 1, "o_addr": 512}, frozenset({"per_tensor"}))
    return {
        "load": [begin, mask, Instruction(Opcode.LOAD, move, frozenset({"masked"}))],
        "store": [begin, mask, Instruction(Opcode.STORE, move, frozenset({"masked"}))],
        **{
            f"matmul {side}": [
                begin,
                mask,
                Instruction(
                    Opcode.MATMUL,
                    product | {f"{side}_mask": bits - 1},
                    frozenset({f"{side}_masked"}),
                ),
                drain,
            ]
            for side in "ab"
        },
    }


@pytest.mark.parametrize("registered", [False, True])
def test_a_mask_is_read_straight_after_it_is_written(registered: bool) -> None:
    """The bit that was written last is what the next command asks for first."""
    config = CONFIG.replace(registered=registered, param_depth=8)
    data = np.random.default_rng(1).integers(1, 256, 2048, np.uint8).tobytes()
    for name, instructions in reading_programs(config, 5).items():
        program = [*insert_tokens(instructions, config), Instruction(Opcode.HALT)]
        assert any(Engine.VECTOR in instruction.pop for instruction in program), name
        results = []
        circuit = VerilatorMachine(config, memory_bytes=MEMORY)  # whose masks are all 0
        for machine in (Interpreter(config), circuit):
            machine.write_memory(0, data)
            machine.load_program(pack(program))
            counters = machine.start().counters
            result = machine.read_memory(0, len(data))
            store = {"dram_addr": 4096, "dram_stride": 1024, "m": 1, "row_bytes": 1024}
            machine.load_program(pack([Instruction(Opcode.STORE, store), Instruction(Opcode.HALT)]))
            machine.start()
            results.append((counters["macs"], result, machine.read_memory(4096, 1024)))
        circuit.close()
        assert results[0] == results[1], name
