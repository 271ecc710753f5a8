"""Machines that run compiled models: the golden machine, simulators, and boards."""

import importlib
from dataclasses import replace

from celosia.arch.errors import check_known
from celosia.generators.runtime.host import Host
from celosia.generators.runtime.interface import Machine
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.machine.simulators import make_machine
from celosia.tb.machine.toolchain import MACHINES


def with_trace_port(code: Host, on: str | Machine) -> Host:
    """Return a compiled program for the machine ``on``; a simulated machine gets a trace port.

    The trace port of a machine reports every tensor that the program writes. ``code`` is the
    program with the configuration of its machine.

    - If ``on`` is the name of the golden machine (a software model) or of a simulator: the returned
      program is a copy of ``code`` whose configuration has a trace port.
    - If ``on`` is the port of a board or a connected machine: the function returns ``code``. A
      board needs no trace port.
    """
    if not isinstance(on, str) or on not in MACHINES:
        return code
    return replace(code, config=code.config.replace(trace=True))


def target(code: Host, on: str | Machine, timing: MemoryTiming) -> Machine:
    """Return the machine with the name ``on``; if ``on`` is a machine already, return it unchanged.

    The name is that of the golden machine, a simulator, or the port of a board, such as
    ``/dev/ttyUSB0``. The golden machine and simulators have a trace port, which reports every
    written tensor. Their external memory has the timing ``timing`` and the size that the program
    ``code`` needs. Raises :class:`InputError` if the name is unknown, and :class:`RunError` if no
    board answers at the port.
    """
    if not isinstance(on, str):
        return on
    if on in MACHINES:
        return make_machine(with_trace_port(code, on).config, on, code.memory_bytes, timing)
    if not any(mark in on for mark in ("/", ":", "COM")):
        check_known("machine", on, (*MACHINES, "a board's port"))
    # Boards need extras that simulations do not.
    machine: Machine = importlib.import_module("celosia.boards").open_port(on, code.config)
    return machine
