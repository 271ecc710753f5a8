"""Timing of a simulated external memory; the memory models of all simulators have this timing."""

from dataclasses import asdict, dataclass

from celosia.arch.errors import InputError

_MOST_CYCLES = 100_000


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """The timing of an external memory, in cycles of the memory port's clock.

    A burst's latency may overlap with the transfer of earlier bursts. Raises :class:`InputError` if
    a field is negative or over 100,000, if ``interval`` is 0, or if ``refresh_cycles`` is positive
    and not less than ``refresh_period``.
    """

    # Changes of rows and banks take no time, as in a controller with interleaved banks.
    latency: int = 8
    """Least time from a burst's request to its first read word, and from its last written word to
    the report."""
    interval: int = 1
    """Least time from one word to the next in the same direction."""
    refresh_period: int = 0
    """Time from one refresh to the next, counted from power-on; 0 for a memory without refreshes.
    """
    refresh_cycles: int = 0
    """Cycles at the end of each period in which the memory accepts no word and offers no new one.
    """

    def __post_init__(self) -> None:
        """Check every field, and the two of refresh together."""
        for name, low in (
            ("latency", 0),
            ("interval", 1),
            ("refresh_period", 0),
            ("refresh_cycles", 0),
        ):
            value = getattr(self, name)
            if not low <= value <= _MOST_CYCLES:
                raise InputError(
                    f"Memory timing {name} must be from {low} to {_MOST_CYCLES}, not {value}"
                )
        if self.refresh_period and self.refresh_cycles >= self.refresh_period:
            raise InputError(
                f"Memory timing refresh_cycles must be less than refresh_period, but "
                f"refresh_cycles is {self.refresh_cycles} and refresh_period is "
                f"{self.refresh_period}"
            )
        if self.refresh_cycles and not self.refresh_period:
            raise InputError(
                f"Memory timing refresh_cycles = {self.refresh_cycles} needs a refresh_period"
            )

    def refreshing(self, cycle: int) -> bool:
        """Return whether the memory is busy with a refresh, ``cycle`` cycles after power-on."""
        if not self.refresh_period:
            return False
        return cycle % self.refresh_period >= self.refresh_period - self.refresh_cycles

    def fields(self) -> dict[str, int]:
        """Return the timing's fields, a dictionary from field name to value.

        The dictionary is also a set of keyword arguments for the constructor.
        """
        return asdict(self)


ONCHIP = MemoryTiming(latency=4)
"""Memory on the chip, as in ``celosia.hdl.memory.onchip``."""

FAR = MemoryTiming(latency=40)
"""A memory behind an interconnect: 40 cycles from a request to its data, then a word a cycle."""

SDRAM = MemoryTiming(latency=40, refresh_period=780, refresh_cycles=9)
"""A modest SDRAM with a controller and an interconnect at 100 MHz.

A refresh command every 7.8 us (8192 rows in 64 ms) holds all banks for 90 ns: 70 to 80 ns of
refresh, and the activation that follows. A request's data come after 400 ns.
"""
