"""The report of one run of a program, on golden machines, simulated circuits and boards."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_MASK = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Report:
    """The outcome of one run: cycles, counters, and signatures (hashes) of written bytes."""

    cycles: int = 0
    """Clock cycles from start to halt; 0 if the machine has no clock."""
    counters: dict[str, int] = field(default_factory=dict)
    """Counters by the names of ``celosia.arch.registers``."""
    signatures: list[int] = field(default_factory=list)
    """One signature of the written bytes for each vector instruction, in program order."""

    @property
    def where(self) -> dict[str, int]:
        """Cycles of each activity of the matrix array in a run; the values add up to ``cycles``.

        The dictionary is empty if the machine has no clock.

        - ``compute``: activations enter the array.
        - ``memory``: activations wait for a scratchpad port.
        - ``dependency``: the next command waits for another engine.
        - ``fill``: the array waits for weights or for sums in its pipeline.
        - ``idle``: the array has no command.
        """
        return where(self.counters) if self.cycles else {}


def where(counters: Mapping[str, int]) -> dict[str, int]:
    """Return a dictionary from activities of the array to cycles, computed from a run's counters.

    ``counters`` is a dictionary from the names of counters to their values. :attr:`Report.where`
    lists the activities.
    """
    return {
        cause: sum(counters[f"array_{name}"] for name in names) for cause, names in CAUSES.items()
    }


def engine_cycles(counters: Mapping[str, int], engine: str) -> dict[str, int]:
    """Return the cycles of each activity of an engine, from a run's counters by name.

    - ``busy``: the engine works.
    - ``stall``: the engine waits for a memory.
    - ``wait``: the next command waits for another engine.
    - ``idle``: there is no command.
    """
    name = engine.lower()
    stall = counters[f"stall_{name}"]
    return {
        "busy": counters[f"busy_{name}"] - stall,
        "stall": stall,
        "wait": counters[f"wait_{name}"],
        "idle": counters[f"idle_{name}"],
    }


CAUSES = {
    "compute": ("product",),
    "memory": ("memory",),
    "dependency": ("wait_load", "wait_vector", "wait_store"),
    "fill": ("fill",),
    "idle": ("queue", "fetch", "over"),
}
"""Activities of the array, and the counters ``ARRAY_NAME`` that add up to each."""


def splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each element (SplitMix64; Steele, Lea and Flood 2014)."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def signature(addresses: NDArray[np.int64], values: NDArray[np.uint8]) -> int:
    """Return the signature of written bytes: the sum of their hashes, modulo 2**64.

    Each hash is computed from a byte and its address. The sum does not depend on the order of the
    bytes. If two runs differ in a byte or an address, their signatures are equal only with
    probability 2**-64.
    """
    keys = (addresses.astype(np.uint64).ravel() << np.uint64(8)) | values.astype(np.uint64).ravel()
    return int(np.sum(splitmix64(keys), dtype=np.uint64) & _MASK)
