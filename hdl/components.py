"""Circuits for your own designs, made from keyword arguments.

Ports, formats, latency and throughput are in the docstring of each class.
"""

from typing import Any

from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.presets import PRESETS
from celosia.hdl.arithmetic.requantize import Requantizer as Requantize
from celosia.hdl.functions.addnorm import AddNormUnit as AddNorm
from celosia.hdl.functions.rotary import RotaryUnit as Rotary
from celosia.hdl.functions.softmax import SoftmaxUnit as Softmax
from celosia.hdl.functions.table import LookupTable as Table
from celosia.hdl.machine import machine_component
from celosia.hdl.matrix import systolic

__all__ = ["Accelerator", "AddNorm", "Requantize", "Rotary", "Softmax", "SystolicArray", "Table"]

Accelerator = machine_component
"""A function that returns the accelerator of a configuration (:class:`celosia.Config`)."""

_ALONE = PRESETS["tiny"]


class SystolicArray(systolic.SystolicArray):
    """A systolic array of ``rows`` x ``cols`` elements; the base class describes ports and timing.

    ``fields`` are fields of :class:`celosia.Config`. By default operands have 8 bits, and sums 32.
    Raises :class:`celosia.InputError` if a field is unknown or fields contradict each other.
    """

    def __init__(self, *, rows: int, cols: int, **fields: Any):
        # Useful fields: weight_depth, operand_width, acc_width, zero_points, operand_gating, sleep,
        # multiplier, registered.
        # Its user counts the products of a sum, so that any sum of one product must fit.
        config = _ALONE.replace(**({"max_k": 1} | fields | {"rows": rows, "cols": cols}))
        super().__init__(config.part(MatrixConfig))
