"""Golden models as functions: NumPy arrays of integers, bit for bit equal to the circuits.

``Machine`` is an untimed model of a whole machine that runs programs of any configuration. Shapes,
formats and rounding are in each function's docstring.
"""

from celosia.sim.interpreter import Interpreter as Machine
from celosia.sim.matmul import multiply as matmul
from celosia.sim.norm import norm_parameters, normalize, quantize_eps
from celosia.sim.polynomial import evaluate as polynomial
from celosia.sim.reciprocal import reciprocal, rsqrt
from celosia.sim.requantize import quantize_multiplier, requantize
from celosia.sim.rotary import rotary_table, rotate
from celosia.sim.softmax import softmax
from celosia.sim.table import lookup

__all__ = [
    "Machine",
    "lookup",
    "matmul",
    "norm_parameters",
    "normalize",
    "polynomial",
    "quantize_eps",
    "quantize_multiplier",
    "reciprocal",
    "requantize",
    "rotary_table",
    "rotate",
    "rsqrt",
    "softmax",
]
