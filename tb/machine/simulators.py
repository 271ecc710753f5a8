"""Opens a machine by name: the golden machine, or the circuit under a simulator."""

from celosia.arch.config import Config
from celosia.arch.errors import InputError, check_known
from celosia.generators.runtime.interface import Machine
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulated import IcarusMachine, VerilatorMachine
from celosia.tb.machine.toolchain import MACHINES

PROMPT = MemoryTiming()
"""The timing of a memory for which none was given."""


def check_simulator(simulator: str) -> None:
    """Raise :class:`InputError` if ``simulator`` is not ``golden``, ``verilator`` or ``icarus``."""
    check_known("simulator", simulator, MACHINES)


def make_machine(
    config: Config,
    simulator: str,
    memory_bytes: int = 1 << 20,
    timing: MemoryTiming = PROMPT,
) -> Machine:
    """Return a golden or simulated machine with ``memory_bytes`` bytes of external memory or more.

    ``simulator`` is ``golden`` (which ignores ``timing``), ``verilator`` or ``icarus``. Raises
    :class:`InputError` if the simulator is unknown or cannot run here, or if ``memory_bytes``
    exceeds the address width.
    """
    check_simulator(simulator)
    size = 1 << (max(memory_bytes, config.mem_bytes) - 1).bit_length()
    if size > 1 << config.memory.addr_width:
        raise InputError(
            f"External memory of {memory_bytes} bytes needs more than mem_addr_width = "
            f"{config.memory.addr_width} bits of address"
        )
    if simulator == "golden":
        return Interpreter(config)
    if simulator == "icarus":
        return IcarusMachine(config, memory_bytes=size, **timing.fields())
    return VerilatorMachine(config, memory_bytes=size, **timing.fields())
