"""Bench of the whole accelerator: random programs against the golden machine, and what ends runs.

Parameters: ``config``, every field of the configuration; ``programs`` and ``steps``, how many
random programs run one after the other and how many instructions each has; ``stall`` and
``latency`` of external memory; ``bus``, the model (of ``celosia.tb.benches.slow_memory``) of a
memory behind a bus instead; ``trials``, of how many kinds of
``celosia.tb.benches.accelerator_waits`` a run is disturbed; ``happens``, whether all of ``HAPPENS``
must. With ``trace`` in the configuration every vector instruction is compared, and what each engine
does in each cycle, without it only what is stored. Machines that are too small for
``celosia.tb.machine.short_programs`` run random programs only.
"""

from typing import Any

import cocotb
import numpy as np

from celosia.arch.config import Config
from celosia.arch.isa import Engine
from celosia.sim.interpreter import Interpreter
from celosia.tb.benches.accelerator_host import LIMIT, Host
from celosia.tb.benches.accelerator_runs import Runs
from celosia.tb.benches.accelerator_waits import LongTrials
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.benches.slow_memory import MODELS, SIZE, ExternalMemory
from celosia.tb.machine.short_programs import has_room
from celosia.tb.verify.random_programs import random_program

HAPPENS = [*(f"STALL_{engine.name}" for engine in Engine), "ARRAY_QUEUE", "ARRAY_OVER"]
"""Counters of what happens in some run."""


async def _start(dut: Any) -> Runs:
    settings = parameters()
    config = Config.of(**settings["config"])
    # Icarus loses what a package puts on an input before the simulation has begun.
    await start_clock(dut)
    if "bus" in settings:
        size = min(1 << config.memory.addr_width, SIZE)
        memory = MODELS[settings["bus"]](dut, config, rng(), settings["stall"], size)
    else:
        memory = ExternalMemory(dut, config, rng(), settings["stall"], settings["latency"])
    return Runs(dut, config, memory, Host(dut, config, memory), rng())


@cocotb.test()
async def random_programs_are_exact(dut: Any) -> None:
    """Each vector instruction's writes, external memory and counters are the golden machine's."""
    settings, runs = parameters(), await _start(dut)
    config, golden = runs.config, Interpreter(runs.config)
    if has_room(config):
        await runs.short(golden)
    for _ in range(settings["programs"]):
        program = random_program(config, runs.random, settings["steps"])
        pc = runs.place(program.words)
        for machine in (golden.dram, runs.memory.bytes):
            machine[: len(program.image)] = np.frombuffer(program.image, np.uint8)
        golden.load_program(program.words)
        await runs.host.load(program.words, pc)
        await runs.run(golden, pc, LIMIT)
    never = {name for name in HAPPENS if not runs.totals[name]}
    assert not never or not settings.get("happens")


@cocotb.test()
async def disturbed_runs_are_told(dut: Any) -> None:
    """A run that is stopped says why, and the next one is exact."""
    settings, runs = parameters(), await _start(dut)
    if "bus" not in settings and has_room(runs.config):
        await LongTrials(runs).run(settings.get("trials", 0))
