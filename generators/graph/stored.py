"""Weights of fewer than 8 bits, stored as codes: a code stands for a value of a number format."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import BYTES, WeightFormat, format_select_flags
from celosia.sim.formats import pack
from celosia.sim.matmul import pairs

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Stored:
    """A matrix [k, n] of weight codes (each stands for a weight), its format and its scales."""

    form: WeightFormat
    codes: Ints = field(repr=False)
    group: int = 0
    """Inputs that share a scale; 0 if only outputs have scales."""
    scales: Ints | None = field(default=None, repr=False)
    """Scales of the groups, [ceil(k / group), n], from 1 to 255."""

    def data(self, rows: slice, columns: slice) -> NDArray[np.uint8]:
        """Return the stored bytes of a part of the weights, as uint8 [rows of bytes, columns].

        ``rows`` and ``columns`` are slices of the matrix [k, n]. A byte has codes of weights from
        one column, or a scale. If groups of rows share scales, ``rows`` must begin at a group's
        first row.
        """
        codes = self.codes[rows, columns]
        if self.scales is None:
            return pack(codes, self.form)
        assert rows.start % self.group == 0
        scales = self.scales[rows.start // self.group :, columns]
        return pack(codes, self.form, self.group, scales)


def stored_rows(stored: Stored | None, k: int) -> int:
    """Return the number of byte rows in which ``k`` rows of a weight matrix are stored.

    A byte row has one byte for each column: the codes of one or more weights, or a scale. If groups
    of weights share scales, the ``k`` rows must begin at the first row of a group.
    """
    return k if stored is None else stored.form.stored_rows(k, stored.group)


def part_rows(stored: Stored | None, config: Config) -> int:
    """Return the smallest number of weight rows that is a multiple of a tile's and a group's rows.

    A tile is the weights that the array multiplies by at one time; the weights of a group share a
    scale. The compiler cuts weight matrices only at multiples of this number of rows.
    """
    return math.lcm(config.array.rows, stored.group if stored and stored.group else 1)


def in_pairs(stored: Stored | None, config: Config) -> bool:
    """Return whether weight slots, the array's memories for tiles, have two weights in each byte.

    The result is true if the configuration has ``packed_slots`` and each operand of the weight
    format fits in 4 bits. If ``stored`` is None, weights are INT8, and the result is false.
    """
    return stored is not None and config.packed_slots and stored.form.paired


def packed_pairs(stored: Stored, rows: slice, size: int) -> tuple[Ints, Stored | None]:
    """Pack 4-bit weights in pairs; return (bytes, None or bytes with a scale per slot and column).

    The slice ``rows`` selects weight rows. A weight slot, the array's memory for a tile, has
    ``size`` rows of bytes. Byte row i has weight row i in its low bits, and row ``i + size`` in its
    high bits. If groups share scales, each slot's rows must be in one group.
    """
    values = np.array(stored.form.values)[stored.codes[rows]]
    both = pairs(values, size)  # [bytes, n]
    if stored.scales is None:
        return both, None
    slots = np.arange(rows.start, rows.start + 2 * len(both), 2 * size)
    scales = stored.scales[slots // stored.group]
    return both, Stored(BYTES, both & 255, size, scales)


def format_flags(stored: Stored | None, config: Config, model: str) -> frozenset[str]:
    """Return the flags of an instruction that reads weights in the format of ``stored``.

    If ``stored`` is None, the weights are INT8, and the set is empty. Raises :class:`InputError`,
    with the model's name ``model``, if the configuration lacks the format or the size of its
    groups.
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
    flags = format_select_flags(1 + config.formats.index(stored.form))
    return flags | {"grouped"} if stored.group else flags
