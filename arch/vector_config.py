"""The part of a configuration that the vector engine uses."""

from dataclasses import dataclass

from celosia.arch.access import Access
from celosia.arch.datapath import Datapath
from celosia.arch.records import (
    Accumulators,
    Activation,
    Array,
    Control,
    Factors,
    Fused,
    Softmax,
    Vector,
)

PARAM_BYTES = 9
"""Size of the requantization parameters of one lane (bytes)."""


class VectorSizes(Datapath):
    """Sizes that are derived from the vector engine's lanes, and from its optional units."""

    vector: Vector
    softmax: Softmax | None
    activation: Activation | None
    fused: Fused | None
    factors: Factors | None

    @property
    def table_slots(self) -> int:
        """Number of activation tables, each of 256 entries, that the vector engine can hold.

        For a machine without activation tables, the value is 2, the default of
        ``activation.slots``.
        """
        return (self.activation or Activation()).slots

    @property
    def wide_functions(self) -> bool:
        """True if an activation table can hold polynomials that approximate a function.

        The function's argument then has 16 bits. Other tables have an entry for each 8-bit
        argument.
        """
        return self.activation is not None and self.activation.polynomials

    @property
    def pre_depth(self) -> int:
        """Number of words of requantization parameters that SOFTMAX and NORM can use.

        SOFTMAX and NORM use these words to requantize inputs that they read from accumulators. The
        words are the first ones of the parameter memory. The value 0 means no limit: SOFTMAX and
        NORM can use all words. It is also 0 if they cannot read accumulators (no record ``fused``).
        """
        return self.fused.words if self.fused else 0

    @property
    def row_factors(self) -> int:
        """Number of rows for which the machine can store a normalization factor; 0 for none.

        SOFTMAX or an RMS norm computes the factors, and a later product is multiplied by them.
        """
        return self.factors.rows if self.factors else 0

    @property
    def beat_lanes(self) -> int:
        """Largest number of elements in a beat, which the vector engine processes in one cycle.

        If the machine has a softmax unit, this is the number of elements in a beat of SOFTMAX,
        otherwise the number of the vector engine's lanes.
        """
        return (self.softmax.lanes if self.softmax else 0) or self.vector.lanes

    @property
    def lane_groups(self) -> int:
        """Number of beats in which a row of ``cols`` accumulators is read.

        Each beat has one accumulator for each lane of the vector engine; the last beat may have
        fewer.
        """
        return -(-self.array.cols // self.vector.lanes)

    @property
    def lane_stages(self) -> int:
        """Number of register stages in the signals that select the input of a vector engine lane.

        It is 1 if the machine has registers between distant units (``registered``), and SOFTMAX and
        NORM can read accumulators (record ``fused``), else 0.
        """
        return self.stages * bool(self.fused)


@dataclass(frozen=True, kw_only=True)
class VectorConfig(VectorSizes):
    """The records that the vector engine uses, and the properties of its scratchpad accesses."""

    access: Access
    array: Array
    accumulators: Accumulators
    control: Control
    vector: Vector
    softmax: Softmax | None
    activation: Activation | None
    fused: Fused | None
    factors: Factors | None

    @property
    def param_lines(self) -> int:
        """Number of scratchpad lines that one word of requantization parameters occupies."""
        return self.access.lines(PARAM_BYTES * self.vector.lanes)
