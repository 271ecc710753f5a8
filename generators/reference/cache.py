"""The KV cache: keys and values of all earlier tokens, and the attention mask."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.generators.graph import operations
from celosia.generators.graph.network import Attention, Home


def in_window(tokens: int, window: int, global_tokens: int) -> NDArray[np.bool_]:
    """Return a mask [tokens, tokens]: [i, j] is true if token i of an encoder attends to token j.

    A token attends to itself and to ``window`` tokens on each side, or to all tokens if ``window``
    is 0. The first ``global_tokens`` tokens attend to all tokens, and all tokens attend to these.
    """
    key = np.arange(tokens)
    query = key[:, None]
    near = (np.abs(query - key) <= window) | (window == 0)
    return np.asarray(near | (np.minimum(query, key) < global_tokens))


def attended(
    node: Attention | operations.Attention, cache: "KvCache", count: int, keys: int
) -> NDArray[np.bool_]:
    """Return a mask [count, keys] of the keys to which the last ``count`` tokens attend.

    - Keys in the KV cache: the mask of :meth:`KvCache.seen`.
    - Keys of an encoder's own tokens: the mask of :func:`in_window` for the attention ``node``.
    - Keys of a source, in cross-attention: all are true.
    """
    match node.key.home:
        case Home.CACHE:
            return cache.seen(count)
        case Home.SOURCE:
            return np.ones((count, keys), bool)
    return in_window(count, node.window, node.global_tokens)


@dataclass
class KvCache:
    """Keys (after rotation) and values of a growing text, as floats or as integers.

    If ``slots`` is 0, a token attends to all tokens so far. Otherwise, it attends to the first
    ``sinks`` and the latest ``slots - sinks`` (Xiao et al. 2024, "Attention Sinks"). Raises
    :class:`InputError` if ``sinks`` is not less than ``slots``.
    """

    slots: int = 0
    sinks: int = 0
    length: int = 0
    """Tokens so far."""
    kept: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Rows by tensor name, [..., heads, at least length, columns]."""

    def __post_init__(self) -> None:
        """Check slots and sinks."""
        if self.slots < 0 or (self.slots and not 0 <= self.sinks < self.slots):
            raise InputError(
                f"Cache slots must be 0 or more than the sinks, but slots is {self.slots} and "
                f"sinks is {self.sinks}"
            )

    def reserve(self, count: int) -> NDArray[np.int64]:
        """Reserve the next ``count`` positions of the text, and return these positions, [count].

        The method increases :attr:`length` by ``count``. It stores no keys and values;
        :meth:`append` does.
        """
        self.length += count
        return np.arange(self.length - count, self.length)

    def append(self, name: str, rows: NDArray[Any]) -> NDArray[Any]:
        """Append the rows of new tokens to the stored tensor ``name``; return all its rows so far.

        ``rows`` is [..., heads, new tokens, columns], and the result is [..., heads, length,
        columns]. The caller first calls :meth:`reserve` for the new tokens.
        """
        total, kept = self.length, self.kept.get(name, rows[..., :0, :])
        count = total - rows.shape[-2]
        if total > kept.shape[-2]:
            more = np.empty((*rows.shape[:-2], max(total, 2 * count), rows.shape[-1]), rows.dtype)
            more[..., :count, :] = kept[..., :count, :]
            kept = more
        kept[..., count:total, :] = rows
        self.kept[name] = kept
        return kept[..., :total, :]

    def store_source(self, name: str, rows: NDArray[Any]) -> None:
        """Store the keys or values of a cross-attention under ``name``.

        ``rows`` [..., n, columns] has a row for each of the n tokens of the encoder's input (the
        source).
        """
        self.kept[name] = rows

    def source_rows(self, name: str) -> NDArray[Any]:
        """Return the keys or values of a cross-attention that are stored under ``name``.

        :meth:`store_source` has stored them. The result [..., n, columns] has a row for each of the
        n tokens of the encoder's input (the source). Raises :class:`InputError` if the encoder has
        not processed its input yet.
        """
        if name not in self.kept:
            raise InputError(f"Tensor {name} needs a source, which has not been encoded")
        return self.kept[name]

    def seen(self, count: int) -> NDArray[np.bool_]:
        """Return a mask [count, length] of the tokens to which the last ``count`` tokens attend.

        The text has ``length`` tokens, including the last ``count`` tokens. Element [i, j] is true
        if token i of the last ``count`` tokens attends to token j of the text.
        """
        token = np.arange(self.length)
        last = token[self.length - count :, None]  # [count, 1]
        kept = (token < self.sinks) | (token > last - (self.slots - self.sinks))
        return np.asarray((token <= last) & (kept | (self.slots == 0)))
