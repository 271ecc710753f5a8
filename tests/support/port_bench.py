"""Benchmark of a memory controller in Verilator.

It checks random bursts, and measures the rate of sequential reads.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from celosia.arch.config import Config
from celosia.arch.support.cache import run_folder
from celosia.tb.machine.toolchain import Runtime, check_simulator, run

_SOURCE = Path(__file__).with_name("memory_port.cpp")
_TIMEOUT = 600.0  # seconds
_FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal")


@dataclass(frozen=True)
class PortFigures:
    """Result of a benchmark of a memory controller, measured at its memory ports.

    ``mismatches`` is the number of wrong bytes read, ``ready`` the number of cycles from power-on
    until the memory could be used. The benchmark ends with a sequential read of ``words`` words,
    which took ``cycles`` cycles. ``told`` contains the lines that the simulated Verilog printed,
    such as messages of its model of a memory chip.
    """

    mismatches: int
    ready: int
    cycles: int
    words: int
    told: tuple[str, ...]


def bench_port(
    verilog: str, config: Config, *, seed: int, bursts: int, memory_bytes: int
) -> PortFigures:
    """Simulate random bursts, followed by a sequential read, at a circuit's memory ports.

    ``bursts`` is the number of random reads and writes, all within the first ``memory_bytes``
    bytes. The bytes read are compared with the bytes written before.

    ``verilog`` is the Verilog of the circuit. Its module ``top`` has the memory ports ``read`` and
    ``write``, with the widths of the configuration ``config``. The output ``ready`` becomes 1 at
    the end of the memory's initialization. The output ``failed`` is 1 if the initialization failed.

    Raises :class:`RunError` if the initialization failed, or the ports stop answering or return an
    unrequested word.
    """
    check_simulator("verilator")
    source = _SOURCE.read_text(encoding="utf-8")
    macros = f"-DWIDTH={config.memory.width} -DADDR={config.memory.addr_width}"
    options = ["-CFLAGS", macros, "-Mdir", ".", "-o", "port", *_FLAGS, "port.cpp", "top.v"]
    work, texts = "Build of the memory port's bench", {"port.cpp": source}
    program = Runtime("harness").build("port", options, verilog, texts, work=work) / "port"
    folder = run_folder("port")
    try:
        log = folder / "run.log"
        words = [str(program), str(seed), str(bursts), str(memory_bytes)]
        run(words, work="The memory port's bench", cwd=folder, log=log, timeout=_TIMEOUT)
        *told, figures = log.read_text(encoding="utf-8").splitlines()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return PortFigures(*map(int, figures.split()), told=tuple(told))
