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
    """Sizes of the vector engine, derived from its number of lanes and from its optional units."""

    vector: Vector
    softmax: Softmax | None
    activation: Activation | None
    fused: Fused | None
    factors: Factors | None

    @property
    def table_slots(self) -> int:
        """Number of activation tables (functions such as GELU) that the vector engine can hold.

        A table has 256 entries. Without the record ``activation`` the number is 2, the default of
        ``activation.slots``, although the machine has no table.
        """
        return (self.activation or Activation()).slots

    @property
    def wide_functions(self) -> bool:
        """True if activation tables can approximate a function of 16-bit arguments by polynomials.

        A table without polynomials has one entry for each 8-bit argument.
        """
        return self.activation is not None and self.activation.polynomials

    @property
    def pre_depth(self) -> int:
        """Number of parameter words that SOFTMAX and NORM can use to requantize accumulators.

        A parameter word has the requantization parameters of all lanes. The number 0 stands for all
        words. Without the record ``fused``, SOFTMAX and NORM cannot read accumulators, and the
        number is 0, too.
        """
        return self.fused.words if self.fused else 0

    @property
    def row_factors(self) -> int:
        """Number of rows for which the machine can store a normalization factor; 0 for none.

        SOFTMAX or an RMS norm computes one factor for each row. The rows of a later matrix product
        are multiplied by these factors.
        """
        return self.factors.rows if self.factors else 0

    @property
    def beat_lanes(self) -> int:
        """Largest number of elements that the vector engine processes in one cycle.

        If the machine has a softmax unit, this is the number of elements that SOFTMAX accepts per
        cycle. Otherwise it is the number of the vector engine's lanes.
        """
        return (self.softmax.lanes if self.softmax else 0) or self.vector.lanes

    @property
    def lane_groups(self) -> int:
        """Number of groups into which a row of ``cols`` accumulators is divided.

        A group has one accumulator for each lane of the vector engine; the last group may have
        fewer.
        """
        return -(-self.array.cols // self.vector.lanes)

    @property
    def lane_stages(self) -> int:
        """Number of register stages in the signals that select the input of a vector engine lane.

        The number is 1 if distant units have registers between them (``registered``) and the
        machine has the option ``fused``, with which SOFTMAX and NORM read accumulators. Otherwise
        it is 0.
        """
        return self.stages * bool(self.fused)


@dataclass(frozen=True, kw_only=True)
class VectorConfig(VectorSizes):
    """The part of a configuration that the vector engine uses.

    ``access`` describes the vector engine's scratchpad accesses. Each other field is a record of
    the configuration (a group of fields), or None if the machine lacks the record's unit.
    """

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
        """Number of scratchpad accesses that read the requantization parameters of all lanes.

        The parameters of one lane have 9 bytes. An access reads ``access.line_bytes`` bytes. For
        example, 8 lanes need 72 bytes, which are 5 accesses of 16 bytes.
        """
        return self.access.lines(PARAM_BYTES * self.vector.lanes)
