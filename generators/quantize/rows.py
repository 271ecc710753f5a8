"""Storage of tensor rows during calibration: for all inputs, or for inputs at equal intervals."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from celosia.generators.frontend.weights import Floats

BY_PAIRS = (".scores", ".probabilities")
"""Ends of the names of tensors with a value for each pair of tokens."""
KEPT_BYTES = 1 << 30
"""Memory for rows (bytes); of larger models only some inputs, or first rows, are kept."""


class Rows:
    """Stores sample rows of tensors during a calibration, at most :data:`KEPT_BYTES` bytes.

    ``count`` inputs have at most ``length`` rows each. If not all rows fit, rows of evenly
    distributed inputs are stored. ``wanted`` has the names of the tensors to store. If ``wanted``
    is None, all tensors with one row per token are stored.
    """

    def __init__(self, count: int, length: int, wanted: Collection[str] | None = None):
        self._count, self._length, self._wanted = count, length, wanted
        self._inputs: NDArray[np.int64] = np.arange(0)
        self._places = 0
        self._kept: dict[str, dict[int, list[Floats]]] = {}
        """Parts of the rows by tensor and by the first of several inputs."""

    def add(self, tensors: Mapping[str, Floats], first: int = 0, first_row: int = 0) -> None:
        """Store tensor rows of a batch of successive inputs, as far as the memory limit permits.

        ``tensors`` maps tensor names to arrays [inputs, rows, columns]. ``first`` is the index of
        the batch's first input; ``first_row`` is the index of the arrays' first row in its input.
        The first call must pass all tensors to be stored.
        """
        kept = {name: rows for name, rows in tensors.items() if self._keeps(name)}
        if not self._places and kept:
            size = sum(rows[0, 0].nbytes for rows in kept.values())
            most = max(1, min(self._count, KEPT_BYTES // (size * self._length)))
            self._inputs = np.arange(most) * self._count // most
            self._places = max(1, min(self._length, KEPT_BYTES // (size * most)))
        for name, rows in kept.items():
            own = self._inputs[(self._inputs >= first) & (self._inputs < first + len(rows))]
            if len(own) and first_row < self._places:
                parts = self._kept.setdefault(name, {}).setdefault(first, [])
                parts.append(rows[own - first, : self._places - first_row])

    def _keeps(self, name: str) -> bool:
        """Return whether a tensor's rows are kept."""
        if self._wanted is not None:
            return name in self._wanted
        return not name.endswith((*BY_PAIRS, "output"))

    def chosen(self, tokens: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the part of the token numbers ``tokens`` [count, length] whose rows are stored.

        For example, if rows 0 to 99 of inputs 0 and 2 are stored, the result is ``tokens[[0, 2],
        :100]``.
        """
        return tokens[self._inputs, : self._places]

    def lengths(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Return the number of stored rows of each input that has stored rows.

        ``counts`` has the number of rows of all inputs. For example, if ``counts`` is (100, 80, 60)
        and all rows of inputs 0 and 2 are stored, the result is (100, 60).
        """
        return tuple(min(counts[index], self._places) for index in self._inputs)

    def joined(self) -> dict[str, Floats]:
        """Return all rows that :meth:`add` has stored, and delete them from this object.

        The result is a dictionary from tensor name to array [rows, columns]. The array has the rows
        of one input after another.
        """
        rows = dict[str, Floats]()
        while self._kept:
            name, by_input = self._kept.popitem()
            parts = [np.concatenate(of_inputs, axis=1) for of_inputs in by_input.values()]
            rows[name] = np.concatenate([part.reshape(-1, part.shape[2]) for part in parts])
        return rows
