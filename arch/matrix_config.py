"""The part of a configuration that the matrix engine uses."""

from dataclasses import dataclass

from celosia.arch.access import Access, next_power_of_two
from celosia.arch.datapath import Datapath
from celosia.arch.formats import EXPONENT_BITS, FORMATS, OPERAND_BITS, SCALE_BITS, WeightFormat
from celosia.arch.records import Accumulators, Array, Control, PackedCache, Weights


class MatrixSizes(Datapath):
    """Sizes and options of the matrix engine, derived from a configuration's records.

    The records are those of the array, the weight formats and the KV cache.
    """

    packed_cache: PackedCache | None
    weights: Weights | None

    @property
    def low_rows(self) -> int:
        """Number of key elements that keep all eight bits in a packed KV cache; 0 if none.

        The other elements have four bits. In a tile's memory, row i has the upper four bits of a
        key's element i. The lower bits of the first ``low_rows`` elements are in the last
        ``low_rows`` rows, element 0 in the last row.
        """
        return self.packed_cache.low_rows if self.packed_cache else 0

    @property
    def block_exponents(self) -> bool:
        """True if the attention values (V) in a KV cache may have exponents; keys never have them.

        In a weight slot (storage for one tile) that holds attention values, each row then has one
        exponent, which scales the row by a power of two.
        """
        return self.packed_cache is not None and self.packed_cache.exponents

    @property
    def packed_slots(self) -> bool:
        """True if each byte of a weight slot (storage for one tile) can hold two 4-bit weights."""
        return self.weights is not None and self.weights.pairs

    @property
    def weight_group(self) -> int:
        """Number of consecutive weights of a column that share a scale; 0 without such scales."""
        return self.weights.group if self.weights else 0

    @property
    def weight_formats(self) -> str:
        """Names of the machine's weight formats besides INT8, separated by commas; "" if none."""
        return self.weights.formats if self.weights else ""

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Tuple of the formats, besides INT8, in which weights may be stored in external memory."""
        return tuple(FORMATS[name] for name in self.weight_formats.split(",") if name)

    @property
    def element_width(self) -> int:
        """Width of a signed operand in the array after its zero point is subtracted (bits)."""
        return self.array.operand_width + self.array.zero_points

    @property
    def passes(self) -> int:
        """Number of passes in which the array multiplies by an 8-bit weight.

        Each pass multiplies by ``pass_width`` bits of the weight.
        """
        return OPERAND_BITS // self.array.pass_width

    @property
    def vector_passes(self) -> int:
        """Largest number of passes in which the array multiplies a row of activations by a tile.

        It is 2, for low and high bytes, if the array accepts INT16 activations. Otherwise it is
        :attr:`passes`, for the bits of weights.
        """
        return 2 if self.array.wide else self.passes

    @property
    def parted(self) -> bool:
        """True if a pass of the array can multiply by only some bits of each 8-bit weight."""
        return self.passes > 1 or self.paired

    @property
    def paired(self) -> bool:
        """True if a byte of a weight slot can hold two 4-bit operands, from two tiles.

        A weight slot is the array's storage for one tile. With ``packed_slots`` the operands are
        weights. With a packed KV cache they are attention keys or values.
        """
        return self.packed_slots or self.packed_cache is not None

    @property
    def lines(self) -> int:
        """Largest number of lines in a weight tile.

        A line is a row of the tile, or a column if an instruction transposes its weights. Columns
        count only if the array can transpose weights (``b_transpose``).
        """
        return max(self.array.rows, self.array.b_transpose * self.array.cols)

    @property
    def line_elements(self) -> int:
        """Largest number of weights in a line of a weight tile.

        A line is a row of the tile, or a column if an instruction transposes its weights. Columns
        count only if the array can transpose weights (``b_transpose``).
        """
        return max(self.array.cols, self.array.b_transpose * self.array.rows)

    @property
    def high_rows(self) -> int:
        """Largest number of elements in a key, if :attr:`low_rows` of them keep all eight bits.

        The number is the largest power of two below the number of the array's rows, but at least 1.
        For example, it is 8 for 13 or 16 rows.
        """
        # The adder tree has a separate subtree for a power of two of rows.
        return max(1, next_power_of_two(self.array.rows) // 2)

    @property
    def slot_scales(self) -> int:
        """Number of scale bits stored with each byte of a weight slot; 0 if none.

        A weight slot is the array's storage for one tile. The 8-bit scale of a column is divided
        among the bytes of the column.
        """
        return -(-SCALE_BITS // self.array.rows) if self.packed_slots and self.weight_group else 0

    @property
    def slot_exponents(self) -> int:
        """Number of exponent bits stored with a byte of attention values in the array; 0 if none.

        A row of values has an exponent of 2 bits: one bit in each of its first two bytes, or both
        in the byte of a single column.
        """
        return -(-EXPONENT_BITS // self.array.cols) if self.block_exponents else 0

    @property
    def edge_stages(self) -> int:
        """Number of register stages at a systolic array's input, before zero points are subtracted.

        The number is 1 if the array is systolic and the configuration field ``control.registered``
        is true. Otherwise the number is 0.
        """
        return self.stages * (self.array.kind == "systolic")

    @property
    def operand_min(self) -> int:
        """Smallest value of a signed operand of ``operand_width`` bits."""
        return -(1 << (self.array.operand_width - 1))

    @property
    def operand_max(self) -> int:
        """Largest value of a signed operand of ``operand_width`` bits."""
        return (1 << (self.array.operand_width - 1)) - 1

    @property
    def elements(self) -> int:
        """Number of the array's processing elements."""
        return self.array.rows * self.array.cols


@dataclass(frozen=True, kw_only=True)
class MatrixConfig(MatrixSizes):
    """The part of a configuration that the matrix engine uses.

    ``access`` describes the matrix engine's scratchpad accesses.
    """

    access: Access
    array: Array
    accumulators: Accumulators
    control: Control
    packed_cache: PackedCache | None
    weights: Weights | None
