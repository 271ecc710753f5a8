"""Golden models of the circuits: functions of NumPy integer arrays with bit-exact results.

``Machine`` is an untimed model of a whole machine that runs programs of any configuration. Each
function's docstring states the shapes, number formats and rounding.
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
