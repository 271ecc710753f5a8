"""The keys and values of all tokens so far, and which of them a token attends to."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError


@dataclass
class KvCache:
    """Keys (rotated) and values of a text that grows, real or integer.

    With ``slots`` of 0 each token attends to all before it. Otherwise to those that a cache of so
    many slots holds: the first ``sinks`` and the last ``slots - sinks``, itself one of these (Xiao
    et al. 2024, "Efficient Streaming Language Models with Attention Sinks"). Token ``t`` is in slot
    ``t``, or ``sinks + (t - sinks) % (slots - sinks)`` where there is none; keys stay as they were
    rotated. All of them are kept here, and those that are overwritten masked.

    Raises :class:`InputError` where the sinks leave no slot.
    """

    slots: int = 0
    sinks: int = 0
    length: int = 0
    """Tokens so far."""
    kept: dict[str, NDArray[Any]] = field(default_factory=dict)
    """By name, [..., heads, length, columns]."""

    def __post_init__(self) -> None:
        """Check slots and sinks."""
        if self.slots < 0 or (self.slots and not 0 <= self.sinks < self.slots):
            raise InputError(
                f"Cache slots must be 0 or more than the sinks, but slots is {self.slots} and "
                f"sinks is {self.sinks}"
            )

    def take(self, count: int) -> NDArray[np.int64]:
        """Count more tokens, and return their places, [count]."""
        self.length += count
        return np.arange(self.length - count, self.length)

    def append(self, name: str, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the rows [..., heads, all, columns] of a tensor with those of new tokens."""
        if name in self.kept:
            rows = np.concatenate([self.kept[name], rows], axis=-2)
        self.kept[name] = rows
        return rows

    def hold(self, name: str, rows: NDArray[Any]) -> None:
        """Keep the rows of a source's keys or values, [..., n, columns]."""
        self.kept[name] = rows

    def held(self, name: str) -> NDArray[Any]:
        """Return the rows of a source's keys or values.

        Raises :class:`InputError` where no source has been encoded.
        """
        if name not in self.kept:
            raise InputError(f"Tensor {name} needs a source, which has not been encoded")
        return self.kept[name]

    def seen(self, count: int) -> NDArray[np.bool_]:
        """Return which of all tokens each of the ``count`` last ones attends to, [count, length].

        ``length`` counts them already.
        """
        token = np.arange(self.length)
        last = token[self.length - count :, None]  # [count, 1]
        kept = (token < self.sinks) | (token > last - (self.slots - self.sinks))
        return np.asarray((token <= last) & (kept | (self.slots == 0)))
