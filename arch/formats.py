"""Weight formats: codes of 2 to 8 bits that a decoder expands to 8-bit operands.

A matrix of codes [k, n] is stored as rows of n bytes. Each column's codes fill its bytes without
gaps, highest bits first. A row of unsigned 8-bit scales precedes each group of ``weight_group``
rows. See equations (11) and (12) of ``docs/formats.md``.
"""

from dataclasses import dataclass

import numpy as np

OPERAND_BITS = 8
"""Width of a decoded weight (bits)."""
PAIRED_BITS = 4
"""Width of a weight in a slot that holds two weights in each byte (bits)."""
EXPONENT_BITS = 2
"""Width of the exponent shared by a block of paired weights (bits); exponents start at 1."""
SCALE_BITS = 8
"""Width of a group's scale (bits)."""
DIGITS = 5
"""Ternary codes in a byte."""
SCALE_FRACTION = 4
"""Fraction bits of the scale of a group of codebook weights (bits)."""


@dataclass(frozen=True)
class WeightFormat:
    """A format of stored weights: each stored code c stands for the integer ``values[c]``.

    The array multiplies by this integer, times the group's scale if weights have group scales.
    """

    name: str
    width: int
    """Width of a code (bits); a ternary code has two bits but is stored as a base-3 digit."""
    values: tuple[int, ...]
    """Operand of each code, before the group's scale is applied."""
    fraction: int = 0
    """Right shift of the product with the group's scale (bits); the result is rounded half up."""
    digits: int = 0
    """Base-3 codes in each byte; 0 if codes are stored as bits."""

    def stored_rows(self, k: int, group: int) -> int:
        """Return the number of byte rows that store ``k`` rows of weights and their scales.

        ``group`` is the number of weights that share a scale; 0 for weights without scales. For
        example, 64 rows of 4-bit codes in groups of 32 take ``2 * (1 + 16) = 34`` byte rows.
        """
        if not group:
            return self._bytes(k)
        whole, rest = divmod(k, group)
        return whole * (1 + self._bytes(group)) + (1 + self._bytes(rest) if rest else 0)

    def _bytes(self, k: int) -> int:
        return -(-k // self.digits) if self.digits else -(-k * self.width // 8)

    @property
    def bits(self) -> float:
        """Average size of a stored weight, without the scales of groups (bits)."""
        return 8 / self.digits if self.digits else self.width

    @property
    def paired(self) -> bool:
        """True if each operand of this format fits in 4 bits: a byte can then hold two operands."""
        half = 1 << (PAIRED_BITS - 1)
        return -half <= min(self.values) and max(self.values) < half and not self.fraction

    def passes(self, width: int) -> int:
        """Return the number of passes in which the array multiplies by a weight of this format.

        A pass multiplies by ``width`` bits of the weight. Formats whose values are only -1, 0 and 1
        take one pass at any width.
        """
        if set(self.values) <= {-1, 0, 1}:
            return 1
        bits = max(max(self.values), -min(self.values) - 1).bit_length() + 1
        return -(-bits // width)

    @property
    def largest(self) -> int:
        """Largest number L such that the format's range includes both L and -L.

        For example, it is 7 if the values are -8 to 7.
        """
        return min(max(self.values), -min(self.values))


def _integers(width: int) -> WeightFormat:
    half = 1 << (width - 1)
    return WeightFormat(f"int{width}", width, (*range(half), *range(-half, 0)))


def _codebook(name: str, width: int, values: list[float]) -> WeightFormat:
    """Return a codebook format of real values, scaled so that the largest magnitude is 127."""
    largest = max(map(abs, values))
    integers = tuple(int(np.rint(127 * value / largest)) for value in values)
    return WeightFormat(name, width, integers, SCALE_FRACTION)


def _floats(exponent: int, mantissa: int, *, top: int) -> list[float]:
    """Return the values of all codes of an 8-bit float, codes above ``top`` set to ``top``.

    The codes above ``top`` are infinities and NaNs in the format (Micikevicius et al. 2022).
    """
    bias, magnitudes = (1 << (exponent - 1)) - 1, []
    for code in range(128):
        high, low = divmod(min(code, top), 1 << mantissa)
        fraction = low / (1 << mantissa)
        magnitudes.append(2.0 ** (max(high, 1) - bias) * (fraction + (high > 0)))
    return [*magnitudes, *(-value for value in magnitudes)]


_NORMAL = [
    *(-1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
]
"""The values of NF4 (Dettmers et al. 2023)."""

BYTES = WeightFormat("bytes", 8, ())
"""Format of rows that are already packed for weight slots."""

FORMATS = {
    form.name: form
    for form in (
        *(_integers(width) for width in range(2, 8)),
        WeightFormat("ternary", 2, (-1, 0, 1), digits=DIGITS),
        WeightFormat("high2", 2, (32, 96, -96, -32)),
        WeightFormat("mid2", 2, (-24, -8, 8, 24)),
        _codebook("nf4", 4, _NORMAL),
        WeightFormat(
            "pow2",
            4,
            (0, *(1 << e for e in range(7)), *(-1 << e for e in range(8))),
            SCALE_FRACTION,
        ),
        _codebook("fp8_e4m3", 8, _floats(4, 3, top=126)),
        _codebook("fp8_e5m2", 8, _floats(5, 2, top=123)),
    )
}
"""Every format by name. INT8 is not in the table: its weights are stored as operands."""

NESTED = "nested"
"""Name of INT8 weights whose bit planes are stored separately: equation (20)."""
PLANES = {2: "high2", 4: "mid2", 8: "int4"}
"""Format of each bit plane of nested weights. A key is the number of upper bits of a weight that
are known after the plane is read (bits)."""

MOST_FORMATS = 7
"""Most formats of one machine: an instruction selects one by three flags."""


def format_select_flags(index: int) -> frozenset[str]:
    """Return the names of an instruction's flags that select a weight format, as a set.

    ``index`` is the format's number among the machine's formats (``Config.formats``), counted from
    1.
    """
    return frozenset(f"format_{bit}" for bit in (1, 2, 4) if index & bit)


def index_of(flags: frozenset[str]) -> int:
    """Return the number of the weight format that the flags of an instruction select.

    The machine's formats (``Config.formats``) are counted from 1; the result is 0 if the flags
    select none of them.
    """
    return sum(bit for bit in (1, 2, 4) if f"format_{bit}" in flags)
