"""Builds the fast simulations of the accelerator that ``celosia.tb.machine.simulated`` controls."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from amaranth.hdl import Shape

from celosia.arch.config import Config
from celosia.arch.isa import Engine
from celosia.arch.registers import ARRAY_CAUSES, REGISTER_MAP
from celosia.arch.support.cache import cached, digest
from celosia.hdl.machine import machine_component
from celosia.hdl.ports import ENGINE_EVENT, WORD, MemoryWritePort, burst_layout, write_layout
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.toolchain import (
    BUILD_SECONDS,
    COMPILER_OPTIONS,
    COVERAGE_OPTIONS,
    QUICK_OPTIONS,
    Runtime,
    check_simulator,
    run,
    simulator_version,
    without_comments,
)
from celosia.tb.verify.faults.sites import find_sites, noting, sites_header

_HARNESS = Path(__file__).parent / "harness"
_INITIAL_VALUE = re.compile(r"^  initial (?:\w+|\\\S+ ) = [^;]+;\n", re.MULTILINE)
_INITIAL_ZEROS = re.compile(r"^  initial for \(_entry = .*;\n", re.MULTILINE)
_DECLARED_VALUE = re.compile(r"^(  (?:output )?reg +[^;=\n]*?) = [^;]+;$", re.MULTILINE)
_MODULE = re.compile(r"^module .*?^endmodule$", re.MULTILINE | re.DOTALL)
_DEPTH = re.compile(r"^  reg (?:\[\d+:0\] )?(\w+|\\\S+ ) \[(\d+):0\];$", re.MULTILINE)


def interface(config: Config) -> dict[str, int]:
    """Return the C++ macros for a simulation's harness, a dictionary from name to value.

    Most macros are widths and bit positions of fields in the memory and trace ports. ``ENGINES`` is
    the number of engines, and ``CAUSES`` is the number of the array's cycle counters.
    """
    burst, trace = burst_layout(config.memory), write_layout(config.access)
    word = MemoryWritePort(config.memory).members["data"].signature.members["payload"].shape
    values = {
        "MEM_WIDTH": config.memory.width,
        "BURST_WIDTH": burst.size,
        "WRITE_WIDTH": word.size,
        "TRACE_WIDTH": trace.size,
        "EVENT_WIDTH": ENGINE_EVENT.size,
        "ENGINES": len(Engine),
        "COMMAND_WIDTH": WORD.size,
        "CAUSES": len(ARRAY_CAUSES),
    }
    for prefix, layout, names in (
        ("BURST", burst, ("addr", "last")),
        ("WRITE", word, ("data", "mask")),
        ("TRACE", trace, ("addr", "count", "data")),
        ("EVENT", ENGINE_EVENT, ("offered", "taken", "done", "lacking")),
    ):
        for name in names:
            field = layout[name]
            values[f"{prefix}_{name.upper()}_LSB"] = field.offset
            values[f"{prefix}_{name.upper()}_WIDTH"] = Shape.cast(field.shape).width
    return values


def accelerator_verilog(config: Config) -> str:
    """Return the Verilog of a configuration's accelerator, from the cache if possible.

    The top module's name is ``top``.
    """
    return kept_verilog(machine_component(config.replace(name="")), "top")


def uninitialized(verilog: str) -> str:
    """Return Verilog without the initial values of registers and writable memories.

    Memories that are never written (tables) keep their initial values.
    """
    for pattern in (_INITIAL_VALUE, _INITIAL_ZEROS):
        verilog = pattern.sub("", verilog)
    return _DECLARED_VALUE.sub(r"\1;", verilog)


def checked(verilog: str) -> str:
    """Return Verilog with added checks: a write past the end of a memory ends the simulation.

    A read past the end is not checked; it returns X.
    """
    return _MODULE.sub(lambda module: _checked_module(module[0]), verilog)


def _checked_module(text: str) -> str:
    for name, last in _DEPTH.findall(text):
        if int(last) & (int(last) + 1):
            message = f'$display("error: %m writes word %0d of {int(last) + 1}", \\2)'
            check = f"begin if (\\2 > {last}) begin {message}; $finish; end \\1 end"
            text = re.sub(rf"({re.escape(name)}\[(\w+)\](?:\[[^\]]+\])? <= [^;]+;)", check, text)
    return text


def build_verilator(
    config: Config,
    replacement: str | None = None,
    *,
    random_start: bool = False,
    faults: bool = False,
    coverage: bool = False,
    quick: bool = True,
) -> Path:
    """Return the folder of a Verilator simulation of an accelerator, from the cache if possible.

    - ``replacement``: Verilog to simulate in place of the accelerator.
    - ``quick``: compile the replacement fast, for a slower simulation.
    - ``random_start``: memories and registers may begin with random values.
    - ``faults``: the simulation can flip bits; the file ``sites.json`` lists these bits.
    - ``coverage``: measure line and toggle coverage.
    """
    check_simulator("verilator")
    # The simulation's argument `+verilator+rand+reset+2` makes the initial values random.
    initial = "unique" if random_start else "fast"
    flags = ["-O3", "--x-assign", "fast", "--x-initial", initial, "--noassert"]
    flags += ["-Wno-lint", "-Wno-style", "--output-split", "20000"]
    flags += [*COVERAGE_OPTIONS] * coverage
    options = QUICK_OPTIONS if replacement is not None and quick else COMPILER_OPTIONS
    runtime = Runtime("harness", *["coverage"] * coverage, make=options)
    own = accelerator_verilog(config)
    verilog = replacement or own
    sites = find_sites(verilog) if faults else []
    if faults:
        flags = [*flags, "--flatten"]
        verilog = noting(verilog)
    if random_start:
        verilog = uninitialized(verilog)
    defines = {**interface(config), "HAS_TRACE": int(config.control.trace), **_member_names(own)}
    if faults:
        defines |= {"CORRECTED": "top__DOT__memory_errors"} if config.protects else {}
        defines |= {"HAS_FAULTS": 1, "STATUS_ADDR": REGISTER_MAP["STATUS"].addr}
        defines["LONGEST_WAIT"] = 3 * config.control.watchdog + 2 * config.accumulators.depth
    header = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    names = ["main.cpp", "machine.h", *["faults.h"] * faults]
    texts = {name: (_HARNESS / name).read_text(encoding="utf-8") for name in names}
    texts["interface.h"] = f"#pragma once\n{header}"

    def write_sites(folder: Path) -> None:
        if faults:
            members = (folder / "Vtop___024root.h").read_text(encoding="utf-8")
            text, kept = sites_header(sites, members)
            (folder / "sites.h").write_text(text, encoding="utf-8")
            listed = json.dumps([asdict(site) for site in kept])
            (folder / "sites.json").write_text(listed, encoding="utf-8")

    words = ["-Mdir", ".", "-o", "harness", *flags, "main.cpp", "top.v"]
    work = f"Build of configuration {config.name} for verilator"
    return runtime.build("harness", words, verilog, texts, work=work, between=write_sites)


def _member_names(verilog: str) -> dict[str, str]:
    """Return the C++ name of each top port: Verilator writes a double underscore as its code."""
    header = verilog.partition("module top (")[2].partition(");")[0]
    ports = re.findall(r"^  (?:input|output) .*?(\w+),?$", header, re.MULTILINE)
    return {port: port.replace("__", "___05F") for port in ports}


def build_icarus(config: Config, memory_bytes: int) -> Path:
    """Return the folder with a compiled Icarus simulation of a configuration's accelerator.

    The simulation is compiled only once: it is stored in the user's cache of builds. The simulated
    external memory has ``memory_bytes`` bytes.
    """
    check_simulator("icarus")
    verilog = checked(accelerator_verilog(config))
    defines = {**interface(config), "MEMORY_WORDS": max(1, memory_bytes // config.mem_bytes)}
    header = "".join(f"`define {name} {value}\n" for name, value in defines.items())
    if config.control.trace:
        header += "`define HAS_TRACE\n"
    main = (_HARNESS / "main.v").read_text(encoding="utf-8")
    command = ["iverilog", "-g2005", "-o", "harness.vvp", "-s", "harness", "main.v", "top.v"]

    def build(folder: Path) -> None:
        for name, text in (("top.v", verilog), ("interface.vh", header), ("main.v", main)):
            (folder / name).write_text(text, encoding="utf-8")
        work = f"Build of configuration {config.name} for icarus"
        log = folder / "iverilog.log"
        run(command, work=work, cwd=folder, log=log, timeout=BUILD_SECONDS)

    texts = (without_comments(verilog), header, main, simulator_version("icarus"), *command)
    return cached("harness", digest(*texts), build)
