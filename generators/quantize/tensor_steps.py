"""Interface between the quantizer and a choice of steps."""

from typing import Protocol

from celosia.generators.frontend.weights import Floats
from celosia.generators.graph import network
from celosia.generators.graph.network import Value
from celosia.generators.graph.tensors import Ints, Tensor


class Steps(Protocol):
    """Float value of one integer step of each tensor."""

    zeros_in_biases: bool
    """True if a linear layer's bias includes its input's zero point, so that the array need not."""
    probability_zero: int
    """Zero point of probabilities."""
    whole: int
    """First columns of a key head that keep 8 bits if others keep fewer."""

    def tensor(self, value: Value) -> Tensor:
        """Return the tensor of a value."""

    def inputs(self, value: Value) -> Floats | None:
        """Return samples [count, columns] of a tensor in its steps; None if none were kept."""

    def weight_steps(self, scaled: Floats, bias: Floats, out: Floats) -> Floats:
        """Return the step of each output [n] of weights [n, k] times their inputs' steps.

        ``bias`` and the outputs' steps, ``out``, are [n].
        """

    def activation(self, node: network.Linear, target: Tensor) -> tuple[float, float, Ints | None]:
        """Return the step of the input of an activation's table, its offset, and the table.

        Without a table the function is requantization's, which is ReLU.
        """

    def products(self, node: network.Attention) -> tuple[Floats, Floats]:
        """Return the steps of products of queries and keys, and the offsets added to them.

        Both are for all heads, [1], or for each, [heads].
        """

    def probability_scale(self, node: network.Attention, head: int) -> float:
        """Return the step of a head's probabilities."""
