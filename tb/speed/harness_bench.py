"""Benchmark that compares the speeds of two simulations: one without cocotb, one under cocotb.

The two simulations are of the same circuit, and run the same program.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.hdl.machine import machine_component
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine.simulators import make_machine
from celosia.tb.verify.random_programs import random_program

STEPS = 60
"""Instructions of the program."""

COCOTB_RUNS = 4
"""Runs of the program under cocotb."""

FAST_RUNS = 100
"""Runs under the fast simulation: about as long as cocotb takes."""


def bench_harness(config: Config, seed: int = 1) -> dict[str, Any]:
    """Return the simulation speeds of a random program without and with cocotb, a dictionary.

    A speed is simulated cycles per second of real time. Key ``ratio`` is the speed without cocotb
    divided by the speed with cocotb. Verilator simulates the same Verilog in both cases. The time
    to build a simulation is not measured.
    """
    config = config.replace(trace=True, mem_addr_width=16)
    program = random_program(config, np.random.default_rng(seed), STEPS)
    machine = make_machine(config, "verilator", 1 << 16)
    machine.write_memory(0, program.image)
    machine.load_program(program.words)
    machine.start()
    begin = time.perf_counter()
    cycles = sum(machine.start().cycles for _ in range(FAST_RUNS))
    fast = cycles / (time.perf_counter() - begin)

    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        parameters = {
            "config": config.fields(),
            "steps": STEPS,
            "runs": COCOTB_RUNS,
            "report": str(report),
        }
        simulate(
            machine_component(config),
            bench="celosia.tb.benches.bench_speed",
            simulator="verilator",
            seed=seed,
            parameters=parameters,
        )
        measured = json.loads(report.read_text(encoding="utf-8"))
    # These cycles include loading the program in each run.
    slow = measured["cycles"] / measured["seconds"]
    return {
        "config": config.name,
        "cycles_per_second": fast,
        "cocotb_cycles_per_second": slow,
        "ratio": fast / slow,
        "seed": seed,
    }
