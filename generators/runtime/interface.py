"""Interface of machines: board, simulated circuit, or golden machine (a program interpreter)."""

from collections.abc import Sequence
from typing import Protocol

from celosia.sim.report import Report


class Written(Protocol):
    """Interface of objects to which a host writes: machines, and builders of flash images."""

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory from byte address ``addr`` on."""

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program's words into program memory."""

    def set_register(self, number: int, value: int) -> None:
        """Set the sequencer's register ``number`` to ``value``, for all later runs."""


class Machine(Written, Protocol):
    """A machine with external memory that a host controls through the host port."""

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return ``count`` bytes of external memory from byte address ``addr`` on."""

    def read_register(self, name: str) -> int:
        """Return the value of a host port register."""

    def start(self, pc: int = 0) -> Report:
        """Run the program from word address ``pc`` to HALT; return a report of the run.

        The report has the run's cycles and counters.
        """

    def all_runs_ended_well(self) -> bool:
        """Return whether all runs since the previous call ended without error or reset."""
