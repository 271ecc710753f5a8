"""What a run of a program tells, whichever machine ran it."""

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
    """Counters by the names of ``arch.registers``."""
    signatures: list[int] = field(default_factory=list)
    """One signature of the bytes written per vector instruction, in program order."""


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
