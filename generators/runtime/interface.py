"""Interface of all machines that run programs: the golden one, a simulated circuit, a board."""

from collections.abc import Sequence
from typing import Protocol

from celosia.sim.report import Report


class Machine(Protocol):
    """A machine with external memory, controlled through its host port."""

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory."""

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return bytes of external memory."""

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program's words."""

    def set_register(self, number: int, value: int) -> None:
        """Set a register."""

    def read_register(self, name: str) -> int:
        """Return a register of the host port."""

    def start(self, pc: int = 0) -> Report:
        """Run from a word address to HALT."""

    def unbroken(self) -> bool:
        """Return whether all runs since the last call ended well and without a reset."""
