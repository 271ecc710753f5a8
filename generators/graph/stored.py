"""Weights of fewer than 8 bits, stored as codes: a code stands for a value of a number format."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import BYTES, WeightFormat, chosen
from celosia.sim.formats import pack
from celosia.sim.matmul import pairs

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Stored:
    """A matrix of weight codes, [k, n], with its format and scales."""

    form: WeightFormat
    codes: Ints = field(repr=False)
    group: int = 0
    """Inputs that share a scale; 0 if only outputs have scales."""
    scales: Ints | None = field(default=None, repr=False)
    """Scales of the groups, [ceil(k / group), n], from 1 to 255."""

    def data(self, rows: slice, columns: slice) -> NDArray[np.uint8]:
        """Return the bytes of the weights in ``rows`` and ``columns``, [stored rows, columns].

        Each byte has the codes of several weights of one column, or a scale of these weights. If
        groups of rows share scales, ``rows`` must begin at the first row of a group.
        """
        codes = self.codes[rows, columns]
        if self.scales is None:
            return pack(codes, self.form)
        assert rows.start % self.group == 0
        scales = self.scales[rows.start // self.group :, columns]
        return pack(codes, self.form, self.group, scales)


def stored_rows(stored: Stored | None, k: int) -> int:
    """Return the number of stored rows for ``k`` rows of weights.

    A stored row has one byte for each column: codes of one or more weights, or a scale. If groups
    of weights share scales, the ``k`` rows must begin at the first row of a group.
    """
    return k if stored is None else stored.form.stored_rows(k, stored.group)


def part_rows(stored: Stored | None, config: Config) -> int:
    """Return the smallest number of weight rows that fills whole tiles and whole groups.

    The weights of a tile fill the array once; the weights of a group share a scale. Matrices are
    cut at multiples of this number of rows.
    """
    return math.lcm(config.array.rows, stored.group if stored and stored.group else 1)


def in_pairs(stored: Stored | None, config: Config) -> bool:
    """Return whether each byte of a weight slot holds two weights.

    A weight slot is storage in the array for one weight tile. A byte holds two weights if the
    configuration has ``packed_slots`` and every weight in the format ``stored`` fits in 4 bits. If
    ``stored`` is None, weights are INT8, and the result is False.
    """
    return stored is not None and config.packed_slots and stored.form.paired


def for_slots(stored: Stored, rows: slice, size: int) -> tuple[Ints, Stored | None]:
    """Return weights as the bytes of weight slots, and the scales of these slots.

    A weight slot is storage in the array for one weight tile: ``size`` rows of bytes. Each byte has
    two weights of the same column. The first result is an array [rows of bytes, n] with the rows
    ``rows`` (a range) of the weight matrix [k, n].

    If groups of weights share scales, the second result is a :class:`Stored` with these bytes and
    one scale for each column of each slot. Then ``rows`` must begin at the first row of a group,
    and each group must fill whole slots. Without group scales, the second result is None.
    """
    values = np.array(stored.form.values)[stored.codes[rows]]
    both = pairs(values, size)  # [bytes, n]
    if stored.scales is None:
        return both, None
    slots = np.arange(rows.start, rows.start + 2 * len(both), 2 * size)
    scales = stored.scales[slots // stored.group]
    return both, Stored(BYTES, both & 255, size, scales)


def format_flags(stored: Stored | None, config: Config, model: str) -> frozenset[str]:
    """Return the flags that make an instruction read ``stored`` weights.

    The flags select the format and, if groups of weights have scales, these scales. There are no
    flags for INT8 weights (``stored`` is None). Raises :class:`InputError` if the configuration
    lacks the format or the group size.
    """
    if stored is None:
        return frozenset()
    if stored.form not in config.formats:
        raise InputError(
            f"Model {model} has weights in {stored.form.name}, but weight_formats is "
            f"{config.weight_formats!r}"
        )
    if stored.group not in (0, config.weight_group):
        raise InputError(
            f"Model {model} has weights in groups of {stored.group}, but weight_group is "
            f"{config.weight_group}"
        )
    flags = chosen(1 + config.formats.index(stored.form))
    return flags | {"grouped"} if stored.group else flags
