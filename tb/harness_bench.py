"""How much faster the fast simulation is than cocotb, on one design in one run."""

import time
from typing import Any

import numpy as np

from arch.config import Config
from hdl.accelerator import Accelerator
from tb.machines import make_machine
from tb.programs import random_program
from tb.simulate import simulate

PROGRAMS = 4
STEPS = 60


def bench_harness(config: Config, seed: int) -> dict[str, Any]:
    """Run random programs under both and return cycles per second of each, and their ratio.

    Both run Verilator on the same Verilog; builds are made before the clock starts.
    """
    config = config.replace(trace=True, mem_addr_width=16)
    program = random_program(config, np.random.default_rng(seed), STEPS)
    machine = make_machine(config, "verilator", 1 << 16)
    machine.write_memory(0, program.image)
    machine.load_program(program.words)
    begin = time.perf_counter()
    cycles = sum(machine.start().cycles for _ in range(10 * PROGRAMS))
    fast = cycles / (time.perf_counter() - begin)

    given = {
        "config": config.fields(),
        "programs": PROGRAMS,
        "steps": STEPS,
        "stall": 0.0,
        "latency": 8,
    }
    name = "random_programs_are_exact"

    def run_bench(programs: int) -> float:
        start = time.perf_counter()
        simulate(
            Accelerator(config),
            bench="tb.bench_accelerator",
            simulator="verilator",
            seed=seed,
            parameters=given | {"programs": programs},
            testcase=name,
        )
        return time.perf_counter() - start

    run_bench(1)
    seconds = run_bench(1 + PROGRAMS) - run_bench(1)
    slow = PROGRAMS * cycles / (10 * PROGRAMS) / seconds
    return {
        "config": config.name,
        "cycles_per_second": fast,
        "cocotb_cycles_per_second": slow,
        "ratio": fast / slow,
        "seed": seed,
    }
