"""The report of a program's run, on any machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_MASK = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Report:
    """The outcome of one run."""

    cycles: int = 0
    """Clock cycles from start to halt; 0 where the machine has no clock."""
    counters: dict[str, int] = field(default_factory=dict)
    """Counters by the names of ``celosia.arch.registers``."""
    signatures: list[int] = field(default_factory=list)
    """One signature of the bytes written per vector instruction, in program order."""

    @property
    def where(self) -> dict[str, int]:
        """Return the run's cycles by what the array did or waited for; their sum is ``cycles``.

        ``compute``: a vector set out for the array; ``memory``: a scratchpad port kept it waiting;
        ``dependency``: the next command waited for another engine, whose name follows; ``fill``:
        weights or sums were in flight; ``idle``: there was no command, as the queue of another
        engine was full, instructions were fetched, or the program had no more. Empty where the
        machine has no clock; of one that does not count them they are all 0.
        """
        return where(self.counters) if self.cycles else {}


def where(counters: Mapping[str, int]) -> dict[str, int]:
    """Return what :attr:`Report.where` does, from counters by their names."""
    return {
        cause: sum(counters[f"array_{name}"] for name in names) for cause, names in CAUSES.items()
    }


def engine_cycles(counters: Mapping[str, int], engine: str) -> dict[str, int]:
    """Return an engine's cycles by what it did, from counters by their names; they sum up to all.

    ``busy``: it worked; ``stall``: it had a command and waited for a memory; ``wait``: it had only
    a command that waited for tokens; ``idle``: it had none.
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
"""The array's cycles by cause, and the counters ``ARRAY_NAME`` of each cause."""


def splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the SplitMix64 finalizer of each element (Steele, Lea and Flood 2014)."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def signature(addresses: NDArray[np.int64], values: NDArray[np.uint8]) -> int:
    """Return the signature of bytes written: the sum modulo 2**64 of a hash of each.

    The sum is the same in whatever order the bytes are written, and differs (with a chance of
    2**-64 against) as soon as one byte or one address does.
    """
    keys = (addresses.astype(np.uint64).ravel() << np.uint64(8)) | values.astype(np.uint64).ravel()
    return int(np.sum(splitmix64(keys), dtype=np.uint64) & _MASK)
