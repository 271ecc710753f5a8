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
    """Stores the rows of tensors during a calibration, within a limit of memory.

    A float model is evaluated on ``count`` inputs of at most ``length`` rows. If the rows for all
    inputs need more than :data:`KEPT_BYTES` bytes, only the rows for some inputs are stored. These
    inputs are distributed evenly over all inputs. If the rows for a single input need more, only
    the first rows for one input are stored. ``wanted`` are the names of the tensors; None stands
    for all tensors with a row for each token.
    """

    def __init__(self, count: int, length: int, wanted: Collection[str] | None = None):
        self._count, self._length, self._wanted = count, length, wanted
        self._inputs: NDArray[np.int64] = np.arange(0)
        self._places = 0
        self._kept: dict[str, dict[int, list[Floats]]] = {}
        """Parts of the rows by tensor and by the first of several inputs."""

    def add(self, tensors: Mapping[str, Floats], first: int = 0, place: int = 0) -> None:
        """Store rows of several tensors for a batch of successive inputs, within a memory limit.

        A row has a tensor's values for one token. If the rows of all inputs exceed the limit, this
        method stores rows of some inputs only. These inputs have equal intervals, for example
        inputs 0, 2 and 4. If one input exceeds the limit alone, this method stores only the first
        rows of input 0.

        - ``tensors``: a dictionary from tensor name to array [inputs, rows, columns].
        - ``first``: the number of the batch's first input, counted from 0 over all inputs of the
          calibration.
        - ``place``: the number of the first row in the arrays, counted from 0 in each input. For
          example, a first call passes rows 0 to 9 of an input with ``place`` 0. The next call
          passes rows 10 to 19 with ``place`` 10.

        The first call must pass all tensors whose rows are to be stored, because it determines how
        many rows are within the limit.
        """
        kept = {name: rows for name, rows in tensors.items() if self._keeps(name)}
        if not self._places and kept:
            size = sum(rows[0, 0].nbytes for rows in kept.values())
            most = max(1, min(self._count, KEPT_BYTES // (size * self._length)))
            self._inputs = np.arange(most) * self._count // most
            self._places = max(1, min(self._length, KEPT_BYTES // (size * most)))
        for name, rows in kept.items():
            own = self._inputs[(self._inputs >= first) & (self._inputs < first + len(rows))]
            if len(own) and place < self._places:
                parts = self._kept.setdefault(name, {}).setdefault(first, [])
                parts.append(rows[own - first, : self._places - place])

    def _keeps(self, name: str) -> bool:
        """Return whether a tensor's rows are kept."""
        if self._wanted is not None:
            return name in self._wanted
        return not name.endswith((*BY_PAIRS, "output"))

    def chosen(self, tokens: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the part of ``tokens`` for which :meth:`add` has stored tensor rows.

        ``tokens`` [count, length] has a token number or a vector for each token of all inputs. If
        the rows of all inputs exceed the memory limit, :meth:`add` stores rows of some inputs only,
        or only the first rows of input 0. For example, if rows 0 to 99 of inputs 0 and 2 are
        stored, the result is ``tokens[[0, 2], :100]``.
        """
        return tokens[self._inputs, : self._places]

    def lengths(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Return a tuple with the number of stored rows of each input that has stored rows.

        ``counts`` has the total number of rows of each input. If the rows of all inputs exceed the
        memory limit, :meth:`add` stores rows of some inputs only, or only the first rows of input
        0. For example, ``counts`` is (100, 80, 60), and the rows of inputs 0 and 2 are stored. The
        result is (100, 60).
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
