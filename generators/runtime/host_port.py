"""Base class of connections to the host port of a circuit or a board."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.arch.registers import (
    CAUSE_MEANINGS,
    CONTROL_START,
    COUNTERS,
    INTERRUPT_DONE,
    STATUS_ERROR,
    cause_of,
)


class HostPort(ABC):
    """Base class of machines that a host controls by reading and writing named registers."""

    config: Config

    @abstractmethod
    def write_register(self, name: str, value: int) -> None:
        """Write a value to the register ``name`` of the host port."""

    @abstractmethod
    def read_registers(self, names: Sequence[str]) -> list[int]:
        """Return the values of the registers ``names``, whose addresses are consecutive."""

    def read_register(self, name: str) -> int:
        """Return the value of the register ``name`` of the host port."""
        return self.read_registers([name])[0]

    def set_register(self, number: int, value: int) -> None:
        """Set the sequencer's register ``number`` to ``value`` for all later runs."""
        self.write_register(f"R{number}", value)

    def begin(self, pc: int = 0) -> None:
        """Start the loaded program at the word address ``pc``; do not wait for the run's end."""
        self.write_register("PC", pc)
        self.write_register("CONTROL", CONTROL_START)

    def all_runs_ended_well(self) -> bool:
        """Return whether all runs since the previous call of this method ended without an error.

        Runs before a reset of the machine do not count. If there is no run that counts, the result
        is False.
        """
        # INTERRUPT shows an abort only after the recovery, STATUS at once.
        status, ended = self.read_register("STATUS"), self.read_register("INTERRUPT")
        self.write_register("INTERRUPT", ended)
        return not status and ended == INTERRUPT_DONE

    def check_program(self, words: Sequence[int]) -> None:
        """Raise :class:`InputError` if the words of a program do not fit the program memory."""
        depth = self.config.control.program_depth
        if len(words) > depth:
            raise InputError(f"Program has {len(words)} words, but program_depth is {depth}")

    def check_status(self, status: int) -> None:
        """Raise :class:`RunError` if the value of the register STATUS reports an error."""
        if status & STATUS_ERROR:
            raise RunError(f"The run stopped: {CAUSE_MEANINGS[cause_of(status)]}")

    def counters(self) -> dict[str, int]:
        """Return the counters of the last run: a dictionary from name in lower case to number."""
        names = [f"{name}_{part}" for name in COUNTERS for part in ("LOW", "HIGH")]
        halves = self.read_registers(names)
        return {
            name.lower(): low | high << 32
            for name, low, high in zip(COUNTERS, halves[::2], halves[1::2], strict=True)
        }
