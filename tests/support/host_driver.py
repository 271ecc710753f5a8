"""The driver in C, compiled for this computer, on a machine whose registers it reaches by calls."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

from celosia.arch.registers import (
    CONTROL_ABORT,
    IDENTITY,
    INTERRUPT_DONE,
    INTERRUPT_ERROR,
    REGISTER_MAP,
)
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.simulated import SimulatedMachine, VerilatorMachine
from celosia.tb.machine.toolchain import run

REGISTERS_ADDR = 0x8000_0000
MEMORY_ADDR = 0x4000_0000
"""Addresses of the registers and external memory for the driver."""

FLAGS = ("-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic", "-O1")
"""Compiler options for every file of the driver."""

BUSY_POLLS = 3
"""Times that the golden machine, which has no time, says that it is busy."""

_SHIM = """\
#include <stdint.h>
#ifndef SHIM_H
#define SHIM_H
extern uint32_t (*celosia_read32)(uintptr_t addr);
extern uint32_t (*celosia_read8)(uintptr_t addr);
extern void (*celosia_write32)(uintptr_t addr, uint32_t value);
extern void (*celosia_write8)(uintptr_t addr, uint8_t value);
#endif
"""
_POINTERS = """\
#include "shim.h"
uint32_t (*celosia_read32)(uintptr_t addr);
uint32_t (*celosia_read8)(uintptr_t addr);
void (*celosia_write32)(uintptr_t addr, uint32_t value);
void (*celosia_write8)(uintptr_t addr, uint8_t value);
"""
_TIMEOUT = 300.0  # seconds


def check_languages(folder: Path, model: str, part: str = "celosia") -> None:
    """Compile and link a folder's files as C and as C++, in C++ around C, and freestanding.

    Each of ``model`` and the function that loads it, of a part of the driver, is used.
    """
    use = f'#include "{model}_model.h"\n'
    use += f"int main(void) {{ celosia_t it = {{0, 0, 0, 1}}; return {part}_load(&it, "
    use += f"&{model}_model); }}\n"
    sources = sorted(path.name for path in folder.glob("*.c"))
    for name in ("use.c", "use.cpp"):
        (folder / name).write_text(use, encoding="utf-8")
    log, warnings = folder / "languages.log", ["-Wall", "-Wextra", "-Werror"]
    for command in (
        ["gcc", *FLAGS, "-ffreestanding", "-c", *sources],
        [
            "g++",
            *warnings,
            "-o",
            "mixed",
            "use.cpp",
            *(f"{Path(source).stem}.o" for source in sources),
        ],
        ["gcc", *FLAGS, "-o", "in_c", "use.c", *sources],
        ["g++", *warnings, "-x", "c++", "-o", "in_cpp", "use.c", *sources],
    ):
        run(command, work="Driver", cwd=folder, log=log, timeout=_TIMEOUT)
    # ARM before version 6 has no fence, and no library with one where firmware stands alone.
    for version, fences in ((4, False), (5, False), (7, True)):
        command = ["gcc", "-E", f"-D__ARM_ARCH={version}", "celosia.c"]
        text = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
        assert (b"__sync_synchronize()" in text) == fences


class Accelerator(ctypes.Structure):
    """The driver's ``celosia_t``."""

    _fields_ = (
        ("registers", ctypes.c_size_t),
        ("memory", ctypes.c_size_t),
        ("memory_bytes", ctypes.c_uint32),
        ("polls", ctypes.c_uint32),
    )


class GoldenPort:
    """The host port of the golden machine, register by register."""

    def __init__(self, machine: Interpreter):
        self.machine = machine
        self.status = 0
        self.aborted = 0
        self.starts: list[int] = []
        """First words of the runs."""
        self._interrupt = 0
        self._program: dict[int, int] = {}
        self._place = 0
        self._pc = 0
        self._busy = 0

    def read(self, name: str) -> int:
        """Return a register."""
        if name == "STATUS" and self._busy:
            self._busy -= 1
            return 1
        if name.startswith("ARGMAX"):
            return self.machine.read_register(name)
        registers = {"ID": IDENTITY, "STATUS": self.status, "INTERRUPT": self._interrupt}
        return registers.get(name, 0)

    def write(self, name: str, value: int) -> None:
        """Write a register; a run is done at once, and said to go on for some polls."""
        if name == "PROGRAM_ADDR":
            self._place = value
        elif name == "PROGRAM_DATA":
            self._program[self._place] = value
            self._place += 1
        elif name == "PC":
            self._pc = value
        elif name == "CONTROL" and value == CONTROL_ABORT:
            self._busy = 0
            self._interrupt |= INTERRUPT_ERROR
            self.aborted += 1
        elif name == "INTERRUPT":
            self._interrupt &= ~value
        elif name == "CONTROL":
            self.machine.load_program([self._program[word] for word in sorted(self._program)])
            self.machine.start(self._pc)
            self.starts.append(self._pc)
            self._interrupt |= INTERRUPT_DONE
            self._busy = BUSY_POLLS
        else:
            self.machine.set_register(int(name.removeprefix("R")), value)


class SimulatedPort:
    """The host port of a simulated machine; with Verilator a host reads STATUS every 50 cycles."""

    def __init__(self, machine: SimulatedMachine):
        self.machine = machine
        self.write: Callable[[str, int], None] = machine.write_register

    def read(self, name: str) -> int:
        if name == "STATUS" and isinstance(self.machine, VerilatorMachine):
            self.machine.clock(50)
        return self.machine.read_register(name)


class HostDriver:
    """The driver and the models of a folder, on a machine.

    ``library`` has the driver's functions. Raises :class:`RuntimeError` where the compiler has
    anything to say.
    """

    def __init__(self, folder: Path, port: GoldenPort | SimulatedPort):
        (folder / "shim.h").write_text(_SHIM, encoding="utf-8")
        (folder / "shim.c").write_text(_POINTERS, encoding="utf-8")
        sources = sorted(path.name for path in folder.glob("*.c"))
        command = ["gcc", *FLAGS, "-shared", "-fPIC", '-DCELOSIA_IO="shim.h"', "-o", "driver.so"]
        log = folder / "gcc.log"
        run([*command, *sources], work="Driver", cwd=folder, log=log, timeout=_TIMEOUT)
        self.library = ctypes.CDLL(str(folder / "driver.so"))
        self._port = port
        self._names = {4 * register.addr: name for name, register in REGISTER_MAP.items()}
        word, byte = ctypes.c_uint32, ctypes.c_uint8
        place = ctypes.c_size_t
        functions = {
            "celosia_read32": ctypes.CFUNCTYPE(word, place)(self._read32),
            "celosia_read8": ctypes.CFUNCTYPE(word, place)(self._read8),
            "celosia_write32": ctypes.CFUNCTYPE(None, place, word)(self._write32),
            "celosia_write8": ctypes.CFUNCTYPE(None, place, byte)(self._write8),
        }
        self._functions = functions  # what C points to is kept
        for name, function in functions.items():
            pointer = ctypes.c_void_p.in_dll(self.library, name)
            pointer.value = ctypes.cast(function, ctypes.c_void_p).value

    def accelerator(self, memory_bytes: int, polls: int = 0) -> Accelerator:
        """Return the accelerator as the driver takes it."""
        return Accelerator(REGISTERS_ADDR, MEMORY_ADDR, memory_bytes, polls)

    def symbol(self, name: str) -> ctypes.c_char:
        """Return something that the sources define, to be passed by reference."""
        return ctypes.c_char.in_dll(self.library, name)

    def _read32(self, addr: int) -> int:
        if addr >= REGISTERS_ADDR:
            return self._port.read(self._names[addr - REGISTERS_ADDR])
        return int.from_bytes(self._port.machine.read_memory(addr - MEMORY_ADDR, 4), "little")

    def _read8(self, addr: int) -> int:
        return self._port.machine.read_memory(addr - MEMORY_ADDR, 1)[0]

    def _write32(self, addr: int, value: int) -> None:
        if addr >= REGISTERS_ADDR:
            self._port.write(self._names[addr - REGISTERS_ADDR], value)
        else:
            self._port.machine.write_memory(addr - MEMORY_ADDR, value.to_bytes(4, "little"))

    def _write8(self, addr: int, value: int) -> None:
        self._port.machine.write_memory(addr - MEMORY_ADDR, bytes([value]))
