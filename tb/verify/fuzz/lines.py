"""Fuzzing of the host link and the bus bridges under cocotb, with random data and timing."""

import dataclasses
from typing import Any

from amaranth.lib.wiring import Component

from celosia.arch.errors import RunError
from celosia.arch.link import VERSION, Identity
from celosia.arch.presets import PRESETS
from celosia.generators.campaign.case import Case
from celosia.hdl.bus.axi4 import Axi4Bridge
from celosia.hdl.bus.bus import BusAddress
from celosia.hdl.bus.wishbone import WishboneBridge
from celosia.hdl.link.link import Link
from celosia.tb.benches.simulate import simulate

LINES = ("link", "axi4", "wishbone")
_WIDTHS = (8, 32, 128)
_TIMEOUT = 60  # cycles
_REQUESTS = 120
_BURSTS = 12
_ADDRESS = 32  # bits


def run(case: Case) -> dict[str, Any]:
    """Simulate the host link or a bus bridge with random settings; return a dictionary.

    The case's field ``line`` selects the circuit: ``link``, ``axi4`` or ``wishbone``. The circuit's
    bench checks the results. Keys of the dictionary:

    - ``mismatch``: the bench's error message, or empty.
    - ``width``: width of memory words (bits).
    - all others: the bench's parameters.
    """
    rng, line = case.rng(), case.choice("line", LINES)
    width = int(rng.choice(_WIDTHS))
    settings: dict[str, Any] = {"stall": float(rng.choice([0.0, 0.3, 0.7, 0.9]))}
    component: Component
    if line == "link":
        identity = Identity(version=VERSION, configuration=77, clock=10**7, memory=5000, payload=64)
        config = PRESETS["tiny"].replace(mem_width=width, mem_addr_width=16, program_depth=100)
        component = Link(
            config.memory,
            program_depth=config.control.program_depth,
            identity=identity,
            timeout=_TIMEOUT,
        )
        settings |= {"identity": dataclasses.asdict(identity), "timeout": _TIMEOUT}
        settings |= {"requests": _REQUESTS, "latency": int(rng.integers(40))}
        bench, tests = "celosia.tb.benches.bench_link", "requests_are_answered"
    else:
        kind = Axi4Bridge if line == "axi4" else WishboneBridge
        config = PRESETS["tiny"].replace(
            mem_width=width, mem_addr_width=24, scratchpad_bytes=1 << 16
        )
        component = kind(config.memory, BusAddress.for_config(config, _ADDRESS, 0))
        settings |= {"model": line, "bursts": _BURSTS}
        if rng.random() < 0.5:
            settings["broken"] = float(rng.choice([0.75, 0.9]))
        bench, tests = "celosia.tb.benches.bench_bridge", None
    mismatch = ""
    try:
        simulate(
            component,
            bench=bench,
            testcase=tests,
            simulator="verilator",
            seed=int(rng.integers(1 << 31)),
            parameters={"config": config.fields(), **settings},
        )
    except RunError as error:
        mismatch = str(error)
    return {"mismatch": mismatch, "line": line, "width": width, **settings}
