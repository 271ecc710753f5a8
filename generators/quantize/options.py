"""Options of quantization, such as weight formats and the KV cache's bits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from celosia.arch.errors import InputError
from celosia.arch.formats import FORMATS, NESTED
from celosia.arch.functions import SMOOTH_FUNCTIONS
from celosia.generators.reference.floats import FUNCTION_NAMES

NARROW_BITS = 8
"""Width below which only parts of the bytes of keys and values are kept (bits)."""
KV_BITS = (NARROW_BITS, 4)
"""Widths in which keys and values may be kept (bits)."""
INT8 = "int8"
"""Name of the format of weights that are stored as operands."""
MIXED = "mixed"
"""Activations of 16 bits in attention, of 8 elsewhere."""


def check_group(group: int, weights: str) -> None:
    """Raise :class:`InputError` if a group size is set for INT8 weights.

    ``group`` is the number of weights that share a scale, or 0 for none. ``weights`` is the name of
    the weights' format; groups need a format of fewer than 8 bits.
    """
    if group > 0 and weights == INT8:
        raise InputError(
            f"Option group={group} needs a format of fewer bits in weights, which is {INT8}"
        )


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """Options of quantization, such as weight formats and the KV cache's bits.

    Raises :class:`InputError` if an option is out of its bounds or contradicts another option.
    """

    balance: float | None = None
    """Degree to which each column fills its range, from 0 (one step for all) to 1.

    See :func:`celosia.generators.quantize.balance.column_gains`. None is 0 for weights that are
    trained for their format, else 0.7 for encoders and 0.5 for decoders.
    """

    percentile: float = 100.0
    """Share of a tensor's values in calibration that its range covers (percent); encoders."""
    per_channel: bool = True
    """True if weights have a scale for each output channel, not one for each tensor; encoders."""

    kv_bits: int = 8
    """Width of the kept keys and values, 8 or 4 (bits); for decoders, like all following
    options."""
    places: int = 0
    """Places in the table of rotary angles (tokens); 0 for the positions of the model."""
    whole: int | None = None
    """Columns of each key head that keep 8 bits if ``kv_bits`` is 4, in a rotated head the pairs
    that turn slowest; None for half of a rotated head, or none of another."""
    block: int = 0
    """Columns of values, of whole heads or parts of one, that share an exponent if ``kv_bits`` is 4
    (columns); 0: their upper bits are kept."""
    texts: int = 16
    """Number of texts that are sampled for calibration."""
    length: int = 512
    """Their length, at most the positions of the model (tokens). Keys drift as they are rotated, so
    places that the samples lack may saturate."""
    weights: str = INT8
    """Format of the weights of linear layers (``celosia.arch.formats``), INT8, or nested."""
    group: int = 0
    """Inputs of a weight format that share a scale (weights); 0: outputs have scales alone."""
    low_rank: int = 0
    """Rank of the correction of weights of fewer bits, as two products of INT8; 0: none."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """The formats of weights that differ from ``weights``, by the weights' names."""
    seed: int = 1
    """Seed of the sampled texts."""
    folded: bool = False
    """True if the gains of RMS norms are included in the following weights, so that all columns of
    a norm have the same parameters, in one word of the machine's."""
    deferred: bool = False
    """True if RMS norms, whose gains are ``folded``, and softmaxes leave rows' factors to the
    products after them: rows of INT8 are those of the residual stream, and the largest weight of a
    softmax is 1. Values have no offsets; decoders."""
    wide_functions: bool = False
    """True if smooth activations use polynomials of INT16 inputs instead of tables of INT8."""
    activations: str = INT8
    """Width of activations in products: INT8, or ``mixed``, which is INT16 in attention."""
    alike: bool = True
    """True if scores and context of all heads of a layer have the same parameters, so that one
    command computes them all."""

    def wide(self, activation: str) -> bool:
        """Return whether the inputs of the activation function named ``activation`` are INT16.

        The result is True if ``wide_functions`` is true and the function is in
        ``SMOOTH_FUNCTIONS``.
        """
        return self.wide_functions and FUNCTION_NAMES.get(activation) in SMOOTH_FUNCTIONS

    def __post_init__(self) -> None:
        """Check the bounds that are not checked elsewhere."""
        if self.balance is not None and not 0 <= self.balance <= 1:
            raise InputError(f"Balance of columns must be from 0 to 1, not {self.balance}")
        if self.kv_bits not in KV_BITS:
            raise InputError(f"Bits of keys and values must be 8 or 4, not {self.kv_bits}")
        for name in (self.weights, *self.chosen.values()):
            if name not in (INT8, *FORMATS, NESTED):
                raise InputError(
                    f"Weights must be in {', '.join((INT8, *FORMATS, NESTED))}, not in {name!r}"
                )
        if self.activations not in (INT8, MIXED):
            raise InputError(f"Activations must be int8 or mixed, not {self.activations!r}")
        if self.activations == MIXED and self.kv_bits < NARROW_BITS:
            raise InputError(
                f"Activations {MIXED} need kv_bits {NARROW_BITS}, but kv_bits is {self.kv_bits}"
            )
        if self.group < 0:
            raise InputError(f"Group of weights must not be negative, not {self.group}")
        if all(name == INT8 for name in (self.weights, *self.chosen.values())):
            check_group(self.group, self.weights)
        if self.weights == NESTED and (self.group or self.low_rank):
            raise InputError(
                f"Weights {NESTED} take neither groups nor a correction, but group is {self.group} "
                f"and the rank {self.low_rank}"
            )
        if self.low_rank < 0:
            raise InputError(f"Rank of a correction must not be negative, not {self.low_rank}")
        if self.low_rank and self.weights == INT8:
            raise InputError(
                f"Rank of a correction is {self.low_rank}, which needs weights of fewer bits, "
                f"but they are in {INT8}"
            )
        if self.whole is not None and self.whole < 0:
            raise InputError(f"Key columns that keep 8 bits must not be negative, not {self.whole}")
        if self.block < 0 or (self.block and self.kv_bits == NARROW_BITS):
            raise InputError(
                f"Columns of values that share an exponent must not be negative and need kv_bits "
                f"{KV_BITS[1]}, but they are {self.block} and kv_bits is {self.kv_bits}"
            )
        if self.whole and self.kv_bits == NARROW_BITS:
            raise InputError(
                f"Key columns that keep 8 bits need kv_bits {KV_BITS[1]}, but they are "
                f"{self.whole} and kv_bits is {self.kv_bits}"
            )
