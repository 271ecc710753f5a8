"""Policies of calibration: the rules by which scales follow from the values of tensors."""

from dataclasses import dataclass

import numpy as np

CLIPS = tuple(np.geomspace(1.0, 0.5, 9).tolist())
"""Shares of a largest magnitude that a range may cover."""


@dataclass(frozen=True)
class Policy:
    """Rules by which the scales of tensors, weights and activation functions are chosen."""

    clips: tuple[float, ...]
    """Shares of a largest magnitude that are tried; the one with the least squared error over the
    samples is used. With a single share no samples are needed."""
    balance: float
    """Default of the option ``balance``."""
    balanced: tuple[str, ...]
    """Last parts of the names of tensors whose columns have separate scales."""
    wide_parts: tuple[str, ...]
    """Tensors of attention that are INT16 if activations are mixed."""
    narrowed: bool
    """True if the inputs of activation functions cover only the range in which the output changes,
    around a zero point; false if they are symmetric."""
    zeros_in_biases: bool
    """True if a linear layer's bias includes its input's zero point, so that the array need not."""
    relu_in_sums: bool
    """True if requantization computes ReLU, without a table."""
    by_head: bool
    """True if columns of queries, keys and values have separate scales, like those of a cache."""
    samples: int
    """Approximate number of a tensor's rows by which weights are chosen."""

    @property
    def searched(self) -> bool:
        """True if scales of tensors are chosen by the rounding error of sample values.

        False if a scale is computed from the range of the tensor's values.
        """
        return len(self.clips) > 1


RANGES = Policy(
    clips=(1.0,),
    balance=0.7,
    balanced=("attention_input", "mlp_input"),
    wide_parts=("attention_input", "query", "key", "context"),
    narrowed=True,
    zeros_in_biases=False,
    relu_in_sums=True,
    by_head=False,
    samples=2048,
)
"""Every tensor fills the range of its integers with its range in calibration."""
LEAST_ERROR = Policy(
    clips=CLIPS,
    balance=0.5,
    balanced=("attention_input", "mlp_input", "final", "context", "hidden"),
    wide_parts=("attention_input", "query", "context"),
    narrowed=False,
    zeros_in_biases=True,
    relu_in_sums=False,
    by_head=True,
    samples=4096,
)
"""Every scale has the least squared error over the samples, so that rare values may saturate."""
