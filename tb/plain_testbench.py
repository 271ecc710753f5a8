"""A testbench in plain Verilog that needs nothing but the files that are generated with it."""

from pathlib import Path

import numpy as np

from arch.config import Config
from arch.registers import REGISTER_MAP
from hdl.bus.bus import MAX_WIDTH
from sim.interpreter import Interpreter
from tb.fast_build import interface
from tb.programs import random_program

NAME = "celosia_accelerator_tb.v"
"""The testbench's file."""

STEPS = 12
"""Random instructions of the program, besides its loading and its drains."""

LATENCY = 10
"""Cycles from a request to external memory to its first word."""

LIMIT = 1_000_000
"""Cycles after which the run is given up."""

_SOURCE = Path(__file__).parent / "harness" / "plain.v"
_REGISTERS = ("PROGRAM_ADDR", "PROGRAM_DATA", "PC", "CONTROL", "STATUS", "MACS_LOW", "CYCLES_LOW")
_WIDTHS = ("MEM_WIDTH", "BURST_WIDTH", "WRITE_WIDTH")
_FIELDS = ("BURST_ADDR", "BURST_LAST", "WRITE_DATA", "WRITE_MASK")


def testbench(
    config: Config,
    control: str,
    seed: int,
    *,
    bus: str,
    addr_width: int,
    base: int,
) -> dict[str, str]:
    """Return the files of a testbench by name: the Verilog, a program, memory before and after.

    The program has random instructions of every kind that the configuration has; what it leaves in
    external memory, and how many products it counts, comes from the golden machine. ``control`` is
    what the accelerator's host port is behind, ``bus`` what its memory is, from the address
    ``base`` of ``addr_width`` bits on. The simulation prints a line that begins with PASS or FAIL.
    """
    program = random_program(config, np.random.default_rng(seed), STEPS)
    if len(program.words) > config.program_depth:
        raise ValueError(
            f"A testbench needs {len(program.words)} words of program, but program_depth is "
            f"{config.program_depth}"
        )
    end = program.result_addr + program.result_bytes
    end += -end % config.mem_bytes
    golden = Interpreter(config)
    before = program.image + bytes(end - len(program.image))
    golden.write_memory(0, before)
    golden.load_program(program.words)
    report = golden.start()
    found = interface(config)
    defines = {name: found[name] for name in _WIDTHS}
    for name in _FIELDS:
        defines |= {f"{name}_{part}": found[f"{name}_{part}"] for part in ("LSB", "WIDTH")}
    defines |= {name: REGISTER_MAP[name].addr for name in _REGISTERS}
    defines |= {
        "MEMORY_WORDS": end // config.mem_bytes,
        "PROGRAM_WORDS": len(program.words),
        # A microcoded machine counts cycles only; what else is read is 0.
        "EXPECTED_MACS": 0 if config.microcoded else report.counters["macs"],
        "LATENCY": LATENCY,
        "LIMIT": LIMIT,
        "BUS_BASE": f"{MAX_WIDTH}'h{base:x}",
        "BUS_ADDR_WIDTH": addr_width,
    }
    header = "".join(f"`define {name} {value}\n" for name, value in defines.items())
    for name, choice in (("CONTROL", control), ("BUS", bus)):
        header += f"`define {name}_{choice.upper().replace('-', '_')}\n"
    return {
        NAME: header + "\n" + _SOURCE.read_text(encoding="utf-8"),
        "program.hex": "".join(f"{word:08x}\n" for word in program.words),
        "memory.hex": _words(before, config),
        "expected.hex": _words(golden.read_memory(0, end), config),
    }


def _words(data: bytes, config: Config) -> str:
    """Return external memory as text, a word a line."""
    step = config.mem_bytes
    places = range(0, len(data), step)
    return "".join(f"{data[place : place + step][::-1].hex()}\n" for place in places)
