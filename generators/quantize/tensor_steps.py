"""The base class that chooses a model's quantization scales, for encoders and for decoders."""

import abc
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Generic

import numpy as np

from celosia.arch.functions import FUNCTIONS, Function, int8_table
from celosia.arch.polynomial import function_table
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.network import Attention, Linear, Value
from celosia.generators.graph.quantized import D
from celosia.generators.graph.tensors import Ints, Tensor
from celosia.generators.quantize.options import MIXED, Quantization
from celosia.generators.reference.floats import FUNCTION_NAMES
from celosia.sim.requantize import INT16_MAX

HEADROOM = 2.0
"""Ratio by which an INT16 value may exceed calibration's largest before it saturates."""
SAMPLES = 4096
"""Approximate number of a tensor's rows by which weights are chosen."""


class Steps(abc.ABC, Generic[D]):
    """Chooses the quantization scales of a model's tensors and weights.

    ``rows`` is a dictionary from tensor name to rows of the tensor in calibration, [count,
    columns]. Operands of matrix products are integers of ``operand_width`` bits, from
    ``operand_min`` to ``operand_max``. The argument ``balance`` is used if the option ``balance``
    is None. The value used is passed as ``strength`` to
    :func:`celosia.generators.quantize.balance.column_gains`, which scales a tensor's columns.
    """

    zeros_in_biases: bool
    """True if a linear layer's bias includes its input's zero point, so that the array need not."""
    relu_in_sums: bool
    """True if requantization computes ReLU, without a table."""
    wide_parts: tuple[str, ...]
    """Tensors of attention that are INT16 if activations are mixed."""
    probability_zero: int
    """Zero point of probabilities."""
    whole = 0
    """First columns of a key head that keep 8 bits if others keep fewer."""

    def __init__(
        self,
        model: D,
        weights: Weights,
        rows: Mapping[str, Floats],
        options: Quantization,
        operand_width: int,
        balance: float,
    ):
        self.model, self.weights, self.rows, self.options = model, weights, rows, options
        self.balance = balance if options.balance is None else options.balance
        self.operand_width, self.operand_max = operand_width, (1 << operand_width - 1) - 1
        self.operand_min = -self.operand_max - 1
        self._tensors: dict[tuple[str, int], Tensor] = {}

    def tensor(self, value: Value) -> Tensor:
        """Return the integer :class:`Tensor` (shape, scales, zero point) for a float tensor."""
        key = value.name, value.rows
        if key not in self._tensors:
            self._tensors[key] = self._make(value)
        return self._tensors[key]

    @abc.abstractmethod
    def _make(self, value: Value) -> Tensor:
        """Return a new tensor for a value of the float graph."""

    def _is_wide(self, name: str) -> bool:
        """Return whether a tensor is INT16 because activations are mixed."""
        return self.options.activations == MIXED and name.rpartition(".")[2] in self.wide_parts

    def inputs(self, value: Value) -> Floats | None:
        """Return rows of a tensor in calibration [count, columns], divided by its columns' scales.

        The result is None if calibration has kept no rows of the tensor.
        """
        rows = self.rows.get(value.name)
        if rows is None:
            return None
        return np.asarray(rows[:: max(1, len(rows) // SAMPLES)] / self.tensor(value).steps)

    @abc.abstractmethod
    def weight_steps(self, scaled: Floats, bias: Floats, out: Floats) -> Floats:
        """Return the scales [n] of a linear layer's weights, one for each of its n outputs.

        ``scaled`` [n, k] are the float weights times the scales of their inputs. ``bias`` [n] is
        the float bias, and ``out`` [n] are the scales of the outputs.
        """

    def activation(self, node: Linear, target: Tensor) -> tuple[float, float, Ints | None]:
        """Return (input scale, offset, table) of a linear layer's activation function.

        ``offset`` is the input scale times the zero point of the table's inputs. The caller adds
        this offset to the layer's float bias. The table has an output for each INT8 input. If
        :meth:`Quantization.wide` is true for the function, its inputs are INT16, and the table has
        coefficients of polynomials instead of outputs. If the table is None, the function is ReLU,
        which requantization computes without a table.
        """
        assert node.sums is not None
        if node.activation == "relu" and self.relu_in_sums:
            return target.scale, 0.0, None
        function, name = FUNCTIONS[FUNCTION_NAMES[node.activation]], node.sums.name
        scale, zero = self._function_input(function, name, target.scale, node.activation)
        if self.options.wide(node.activation):
            return scale, 0.0, function_table(function, scale, target.scale, target.zero)
        operands = target.zero, self.operand_width
        return scale, scale * zero, int8_table(function, scale, zero, target.scale, *operands)

    @abc.abstractmethod
    def _function_input(
        self, function: Function, name: str, after: float, activation: str
    ) -> tuple[float, int]:
        """Return scale and zero point of a function's inputs, whose outputs have scale ``after``.

        Inputs are INT16, with the zero point 0, if the options say so for the ``activation``.
        """

    @abc.abstractmethod
    def products(self, node: Attention) -> tuple[Floats, Floats]:
        """Return two arrays, the scales and the offsets of the products of queries and keys.

        An offset is a real number that is added to all products of a head before they become INT16
        scores. Each array is [1] if all heads share a value, otherwise [heads].
        """

    @abc.abstractmethod
    def probability_scale(self, node: Attention, head: int) -> float:
        """Return the quantization scale of a head's probabilities."""

    def _common_zero(self, ranges: Iterable[tuple[float, float]], share: float) -> int:
        """Return the zero point for which the worst of several ranges, scaled, loses least.

        Without any range ``share`` of the integers are below it.
        """
        shares = [-low / (high - low) for low, high in ranges if high > low]
        least = ceil(max(shares, default=share) * (self.operand_max - self.operand_min))
        return min(self.operand_min + least, self.operand_max - 1)


def wide_scale(sizes: Sequence[float]) -> float:
    """Return the scale at which INT16 has room for twice the largest of ``sizes``.

    ``sizes`` has the largest magnitude of each tensor with this scale.
    """
    return HEADROOM * float(max(sizes)) / INT16_MAX
