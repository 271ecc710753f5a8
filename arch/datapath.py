"""Sizes and latencies that the matrix engine and the vector engine have in common."""

from celosia.arch.records import Accumulators, Array, Control


class Datapath:
    """Pipeline stages and latencies of a configuration's scratchpad and accumulators."""

    array: Array
    accumulators: Accumulators
    control: Control

    def protected(self, unit: str) -> str:
        """Return a unit's level of protection against flipped bits.

        ``unit`` is one of :data:`celosia.arch.protection.UNITS`; the result is ``none``, ``detect``
        or ``correct``.
        """
        return self.control.protected(unit)

    @property
    def stages(self) -> int:
        """Pipeline stages on paths between distant units: 1 if ``control.registered``, else 0."""
        return self.control.stages

    @property
    def sram_latency(self) -> int:
        """Cycles from the grant of a scratchpad read request to the arrival of the data."""
        return 2 + self.stages

    @property
    def weight_latency(self) -> int:
        """Cycles from an accepted read request for weights to the arrival of the weights.

        Weights are read from the scratchpad. A request reads a row of a weight tile, or a column if
        the instruction transposes its weights. The latency is the same for rows and columns.
        """
        return self.sram_latency + self.stages

    @property
    def acc_latency(self) -> int:
        """Cycles between an accepted read request for an accumulator row and the row's output."""
        return 2 + self.stages

    @property
    def acc_corrected(self) -> bool:
        """True if there is an additional register between the accumulators' block RAM and adders.

        The register belongs to the circuit that corrects flipped bits of stored sums.
        """
        return self.control.registered and self.protected("accumulators") == "correct"

    @property
    def acc_settle(self) -> int:
        """Fewest cycles between the last addition to an accumulator row and a read of this row."""
        return 3 + self.stages + self.acc_corrected

    @property
    def acc_addr_width(self) -> int:
        """Width of an accumulator row address (bits)."""
        return self.accumulators.addr_width
