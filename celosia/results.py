"""Results of compiled models: outputs of a run, and quantization errors by layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.tables import Shown, figure_table


@dataclass(frozen=True, eq=False, repr=False)
class Run(Shown):
    """Results of a program's run on inputs: outputs, cycles, and the number of wrong tensors.

    A tensor is wrong if it differs from the golden machine's tensor. If the golden machine itself
    runs the program, a tensor is wrong if it differs from the quantized model's, which NumPy
    computes.
    """

    outputs: list[NDArray[np.float64]]
    """Output of the whole model for each input, in the model's unit; for a language model the
    logits after the last token, [vocabulary]."""
    cycles: int | None
    """Measured cycles over all inputs; None on a machine without a clock."""
    mismatches: int
    """Number of wrong tensors."""
    tensors: int
    """Number of tensors that were compared."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """The machine's counters summed over the run, by the names of ``celosia.arch.registers``."""

    def lines(self) -> list[dict[str, Any]]:
        """Return a table of the run: numbers of inputs, cycles, mismatches and compared tensors.

        Each line of the table is a dictionary with the keys ``figure`` (a name) and ``value``. If
        the number of cycles is unknown, the table has no line for cycles. Mismatches are tensors
        that differ from their reference.
        """
        own = {"inputs": len(self.outputs), "cycles": self.cycles}
        return figure_table(**own, mismatches=self.mismatches, tensors=self.tensors)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Quantization error of each layer, and the quantization option that reduces the error most."""

    layers: Sequence[Mapping[str, Any]]

    def lines(self) -> Sequence[Mapping[str, Any]]:
        """Return a table with one line for each layer.

        A line has the layer's error, and the quantization option that reduces the error most.
        """
        return self.layers
