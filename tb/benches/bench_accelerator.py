"""Bench of the whole accelerator: its runs must equal the golden machine's, also after errors."""

# Parameters:
# - config: all fields of the configuration
# - programs, steps: the numbers of random programs, and of instructions in each
# - stall: the probability in each cycle that a channel of external memory pauses
# - latency: the largest latency of external memory (cycles)
# - bus (optional): the name of a memory in MODELS, to which a bus bridge connects the accelerator
# - trials (optional): the number of trials of LongTrials; with ``bus`` none run
# - happens (optional): if true, each counter in HAPPENS must be above 0 after at least one run

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
"""Counters of events that occur in some run."""


async def _start(dut: Any) -> Runs:
    settings = parameters()
    config = Config.of(**settings["config"])
    # Icarus loses values that a package drives before the simulation has begun.
    await start_clock(dut)
    if "bus" in settings:
        size = min(1 << config.memory.addr_width, SIZE)
        memory = MODELS[settings["bus"]](dut, config, rng(), settings["stall"], size)
    else:
        memory = ExternalMemory(dut, config, rng(), settings["stall"], settings["latency"])
    return Runs(dut, config, memory, Host(dut, config, memory), rng())


@cocotb.test()
async def random_programs_are_exact(dut: Any) -> None:
    """After random programs, external memory and counters are the same as in the golden machine.

    If the configuration has trace ports, the vector engine's writes to the scratchpad are the
    same, too.
    """
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
    """If a trial (a deliberate disturbance) stops a run, STATUS reports the cause.

    The next run, without a disturbance, has the golden machine's results.
    """
    settings, runs = parameters(), await _start(dut)
    if "bus" not in settings and has_room(runs.config):
        await LongTrials(runs).run(settings.get("trials", 0))
