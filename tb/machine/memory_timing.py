"""Timing of a simulated external memory; the memory models of all simulators have this timing."""

from dataclasses import asdict, dataclass

from celosia.arch.errors import InputError

_MOST_CYCLES = 100_000


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """The timing of an external memory, in cycles of the memory port's clock.

    The first word of a burst is read ``latency`` cycles after the burst's request at the earliest.
    A burst is reported as written ``latency`` cycles after its last word. Requests are accepted
    while words of earlier bursts are transferred, so that the latency of a burst overlaps with
    these transfers. In each direction at most one word is transferred every ``interval`` cycles.
    Changes of rows and banks take no further time, as in a controller with interleaved banks, which
    opens the next row while it reads a row.

    The memory is refreshed in the last ``refresh_cycles`` of every ``refresh_period`` cycles,
    counted from power-on. During a refresh it accepts no word to write and offers no new read word;
    the machine can still accept a word that was offered before. If the period is 0, there is no
    refresh.

    Raises :class:`InputError` if the memory could never transfer a word, or only after more than
    100,000 cycles.
    """

    latency: int = 8
    interval: int = 1
    refresh_period: int = 0
    refresh_cycles: int = 0

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
        """Return the constructor's keyword arguments, a dictionary from field name to value."""
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
