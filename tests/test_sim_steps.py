"""A step of the golden machine changes, and depends on, no cell beyond its regions."""

from collections import Counter

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.sim.flow import Step, run
from celosia.sim.interpreter import Interpreter
from celosia.sim.regions import Region, regions
from celosia.tb.verify.configurations import random_config
from celosia.tb.verify.random_programs import random_program

Cells = dict[str, list[np.ndarray]]


def cells_of(machine: Interpreter) -> Cells:
    """Return a machine's memories: arrays whose first axis is the cell of a region."""
    return {
        "dram": [machine.dram],
        "sp": [machine.sp],
        "acc": [machine.acc],
        "params": [machine.bias, machine.multiplier, machine.shift],
        "table": [machine.tables],
        "slots": [machine.slots],
        "factors": [machine.factors.T],
    }


def fill(machine: Interpreter, seed: int) -> None:
    """Give all memories random contents that instructions could have left there."""
    rng, cells = np.random.default_rng(seed), cells_of(machine)
    bounds = {
        "dram": [(0, 256)],
        "sp": [(0, 256)],
        "acc": [(-(1 << 20), 1 << 20)],
        "params": [(-(1 << 20), 1 << 20), (1 << 30, 1 << 31), (-20, 3)],
        "table": [(-128, 128)],
        "slots": [(-128, 128)],
    }
    for name, limits in bounds.items():
        for array, (low, high) in zip(cells[name], limits, strict=True):
            array[:] = rng.integers(low, high, array.shape)
    machine.factors[0] = rng.integers(1 << 16, 1 << 17, machine.factors.shape[1])
    machine.factors[1] = rng.integers(0, 32, machine.factors.shape[1])


def marked(touched: list[Region], cells: Cells) -> dict[str, np.ndarray]:
    """Return for each memory which of its cells are in some regions."""
    marks = {name: np.zeros(len(arrays[0]), bool) for name, arrays in cells.items()}
    for region in touched:
        marks[region.memory][region.cells()] = True
    return marks


def check_step(config: Config, step: Step) -> set[str]:
    """Run a step on two machines that differ outside of its regions; return changed memories."""
    instruction = Instruction(step.opcode, dict(step.operands), step.flags - {"followed"})
    words = pack([instruction, Instruction(Opcode.HALT)])
    reads, writes = regions(step, config)
    machines = [Interpreter(config) for _ in range(2)]
    for seed, machine in enumerate(machines):
        fill(machine, seed)
    first, other = (cells_of(machine) for machine in machines)
    touched, written = marked(reads + writes, first), marked(writes, first)
    for name, mark in touched.items():
        for array, source in zip(other[name], first[name], strict=True):
            array[mark] = source[mark]
    before = {name: [array.copy() for array in arrays] for name, arrays in first.items()}
    reports = []
    for machine in machines:
        machine.load_program(words)
        reports.append(machine.start())
    changed = set()
    for name, arrays in first.items():
        for array, twin, old in zip(arrays, other[name], before[name], strict=True):
            assert array.dtype.kind in "iu", name
            np.testing.assert_array_equal(array[~written[name]], old[~written[name]], str(step))
            np.testing.assert_array_equal(array[touched[name]], twin[touched[name]], str(step))
            if np.any(array != old):
                changed.add(name)
    assert reports[0] == reports[1]
    assert changed <= {region.memory for region in writes}
    return changed


CONFIGS = {
    "small": PRESETS["small"].replace(fused=True, rotary=True, argmax=True, wide_functions=True),
    "odd": PRESETS["odd"].replace(weight_depth=8, wide_operands=True, rotary=False),
    "formats": PRESETS["small"].replace(
        weight_formats="int4,ternary", weight_group=16, sparse_lanes=4
    ),
    **{f"random {seed}": random_config(np.random.default_rng(seed)) for seed in range(6)},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_touch_only_their_regions(name: str) -> None:
    config = CONFIGS[name].replace(mem_addr_width=16)
    program = random_program(config, np.random.default_rng(len(name)), steps=40)
    steps = {str(step): step for step in run(program.words)}
    changed: Counter[str] = Counter()
    for step in steps.values():
        for memory in check_step(config, step):
            changed[memory] += 1
    assert {"sp", "dram"} <= changed.keys()
