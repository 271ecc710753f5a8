"""Interface between the quantizer and the two ways to choose quantization scales."""

from typing import Protocol

from celosia.generators.frontend.weights import Floats
from celosia.generators.graph import network
from celosia.generators.graph.network import Value
from celosia.generators.graph.tensors import Ints, Tensor


class Steps(Protocol):
    """The choice of quantization scales for a model's tensors and weights."""

    zeros_in_biases: bool
    """True if a linear layer's bias includes its input's zero point, so that the array need not."""
    probability_zero: int
    """Zero point of probabilities."""
    whole: int
    """First columns of a key head that keep 8 bits if others keep fewer."""

    def tensor(self, value: Value) -> Tensor:
        """Return the integer tensor for a value of the float graph."""

    def inputs(self, value: Value) -> Floats | None:
        """Return samples [count, columns] of a tensor, divided by its scales; None if not kept."""

    def weight_steps(self, scaled: Floats, bias: Floats, out: Floats) -> Floats:
        """Return the scale of each output [n] for weights [n, k] times their inputs' scales.

        ``bias`` and ``out``, the outputs' scales, are [n].
        """

    def activation(self, node: network.Linear, target: Tensor) -> tuple[float, float, Ints | None]:
        """Return (input scale, offset, table) of an activation function.

        If the table is None, requantization computes the function, which is ReLU.
        """

    def products(self, node: network.Attention) -> tuple[Floats, Floats]:
        """Return the scales and the offsets of the products of queries and keys.

        Scales and offsets are [1] for all heads, or [heads].
        """

    def probability_scale(self, node: network.Attention, head: int) -> float:
        """Return the quantization scale of a head's probabilities."""
