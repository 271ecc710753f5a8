"""Bench of cocotb's speed: simulated cycles per second of one program on the accelerator.

Parameters: ``config``, all fields of the configuration; ``steps``, the number of the program's
instructions; ``runs``, the number of runs; ``report``, the JSON file for the total ``cycles`` and
``seconds``.
"""

import json
import time
from pathlib import Path
from typing import Any

import cocotb
import numpy as np

from celosia.arch.config import Config
from celosia.tb.benches.bench_accelerator import Host
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.benches.slow_memory import ExternalMemory
from celosia.tb.verify.random_programs import random_program

LATENCY = 8
"""Cycles from a request to external memory to its first word, as in ``tb/machine/simulated.py``."""


@cocotb.test()
async def runs_are_timed(dut: Any) -> None:
    """Measure the cycles and seconds of all runs of one random program on the accelerator.

    Each run must end without an error. The total cycles and seconds are written to the file
    ``report``, a parameter of the bench.
    """
    settings = parameters()
    config = Config.of(**settings["config"])
    memory = ExternalMemory(dut, config, rng(), 0.0, LATENCY)
    program = random_program(config, rng(), settings["steps"])
    await start_clock(dut)
    host = Host(dut, config, memory)
    memory.bytes[: len(program.image)] = np.frombuffer(program.image, np.uint8)
    begin = time.perf_counter()
    for _ in range(settings["runs"]):
        assert await host.run(program.words) == 0
    seconds = time.perf_counter() - begin
    assert host.cycles > settings["runs"]
    report = json.dumps({"cycles": host.cycles, "seconds": seconds})
    Path(settings["report"]).write_text(report, encoding="utf-8")
