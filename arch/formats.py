"""Formats of weights: codes of fewer bits, which a decoder turns into 8-bit operands.

A matrix [k, n] in a format is rows of n bytes. Each column is a string of codes, the first at the
uppermost bits of the first byte; ternary codes are five digits in base 3 of a byte. With groups,
each run of ``weight_group`` codes has a row of unsigned scales, one byte for each column, in front
of it, and begins at a new byte. Equations (11) and (12) of ``docs/numerics.md``.
"""

from dataclasses import dataclass

import numpy as np

OPERAND_BITS = 8
"""Width of what a decoder makes (bits)."""
PAIRED_BITS = 4
"""Width of an operand of which a byte of a weight slot holds two (bits)."""
EXPONENT_BITS = 2
"""Width of the common exponent of a block of such operands, which counts from 1 (bits)."""
SCALE_BITS = 8
"""Width of the scale of a group (bits)."""
DIGITS = 5
"""Ternary codes of a byte."""
SCALE_FRACTION = 4
"""Bits behind the point of the scale of a codebook's group (bits)."""


@dataclass(frozen=True)
class WeightFormat:
    """Value of each code of a weight."""

    name: str
    width: int
    """Width of a code (bits); ternary codes, in two bits, are stored as digits."""
    values: tuple[int, ...]
    """The operand of each code before its group's scale."""
    fraction: int = 0
    """Bits that the product with the group's scale is shifted by, rounded half up."""
    digits: int = 0
    """Codes that are stored as the digits of a byte; 0 where they are bits."""

    def stored_rows(self, k: int, group: int) -> int:
        """Return the rows of bytes that k codes of each column take, in groups where there are."""
        if not group:
            return self._bytes(k)
        whole, rest = divmod(k, group)
        return whole * (1 + self._bytes(group)) + (1 + self._bytes(rest) if rest else 0)

    def _bytes(self, k: int) -> int:
        return -(-k // self.digits) if self.digits else -(-k * self.width // 8)

    @property
    def bits(self) -> float:
        """Stored bits of a weight, scales apart."""
        return 8 / self.digits if self.digits else self.width

    @property
    def paired(self) -> bool:
        """Two operands fit a byte."""
        half = 1 << (PAIRED_BITS - 1)
        return -half <= min(self.values) and max(self.values) < half and not self.fraction

    def passes(self, width: int) -> int:
        """Return the parts of ``width`` bits that an operand has before its group's scale.

        The last is signed, so that -1, 0 and 1 are one of any width.
        """
        if set(self.values) <= {-1, 0, 1}:
            return 1
        bits = max(max(self.values), -min(self.values) - 1).bit_length() + 1
        return -(-bits // width)

    @property
    def largest(self) -> int:
        """Largest magnitude that values of both signs have."""
        return min(max(self.values), -min(self.values))


def _integers(width: int) -> WeightFormat:
    half = 1 << (width - 1)
    return WeightFormat(f"int{width}", width, (*range(half), *range(-half, 0)))


def _codebook(name: str, width: int, values: list[float]) -> WeightFormat:
    """Return a codebook of real values, the largest of which is 127."""
    largest = max(map(abs, values))
    integers = tuple(int(np.rint(127 * value / largest)) for value in values)
    return WeightFormat(name, width, integers, SCALE_FRACTION)


def _floats(exponent: int, mantissa: int, *, top: int) -> list[float]:
    """Return the values of all codes of an 8-bit float; those above code ``top`` are as ``top``.

    These stand for infinities and what is no number (Micikevicius et al. 2022).
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
"""Format of rows that are packed already, for weight slots."""

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
"""Every format by name. INT8 is no format: such weights are operands as they are stored."""

NESTED = "nested"
"""Name of INT8 weights whose planes are stored apart: equation (20)."""
PLANES = {2: "high2", 4: "mid2", 8: "int4"}
"""The format of each plane of nested weights, by the bits that it ends (bits)."""

MOST_FORMATS = 7
"""Formats of one machine: an instruction names them by three flags."""


def chosen(index: int) -> frozenset[str]:
    """Return the flags of an instruction that name the machine's format ``index``, from 1 on."""
    return frozenset(f"format_{bit}" for bit in (1, 2, 4) if index & bit)


def index_of(flags: frozenset[str]) -> int:
    """Return which of a machine's formats, from 1 on, the flags name; 0 for none."""
    return sum(bit for bit in (1, 2, 4) if f"format_{bit}" in flags)
