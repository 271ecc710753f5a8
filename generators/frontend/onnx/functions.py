"""Dictionaries from types of ONNX nodes to elementwise functions of one or two operands."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from celosia.arch.functions import gelu_erf, hard_swish, mish, relu, sigmoid
from celosia.generators.frontend.onnx.node import Node
from celosia.generators.frontend.onnx.values import Function, UnsupportedError
from celosia.generators.frontend.weights import Floats


def _erf(x: Floats) -> Floats:
    """Return the error function, by the normal distribution's: gelu_erf(x) is x * Phi(x)."""
    at = np.where(x == 0, 1.0, x) * np.sqrt(2)
    return np.where(x == 0, 0.0, 2 * gelu_erf(at) / at - 1)


UNARY: Mapping[str, Function] = {
    "Abs": np.abs,
    "Erf": _erf,
    "Exp": np.exp,
    "HardSwish": hard_swish,
    "Mish": mish,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Relu": relu,
    "Sigmoid": sigmoid,
    "Softplus": lambda x: np.logaddexp(0.0, x),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Pow": np.power,
    "Sub": np.subtract,
}


def _clip(node: Node) -> Function:
    ends = [float("-inf"), float("inf")]
    for place, name in enumerate(("min", "max")):
        value = node.attribute(name, None)
        if len(node.inputs) > place + 1 and node.inputs[place + 1] is not None:
            value = float(node.constant(place + 1).reshape(()))
        ends[place] = ends[place] if value is None else value
    low, high = ends
    return lambda x: np.asarray(np.clip(x, low, high))


def _below_zero(name: str, default: float, negative: Function) -> Callable[[Node], Function]:
    """Return the maker of a function: ``negative`` of values below 0, times an attribute."""

    def make(node: Node) -> Function:
        slope = float(node.attribute(name, default))
        if node.kind == "PRelu":
            slopes = np.unique(node.constant(1))
            if len(slopes) != 1:
                raise UnsupportedError("its slopes differ from column to column")
            slope = float(slopes[0])
        return lambda x: np.asarray(np.where(x < 0, slope * negative(np.minimum(x, 0.0)), x))

    return make


def _hard_sigmoid(node: Node) -> Function:
    slope, middle = node.attribute("alpha", 0.2), node.attribute("beta", 0.5)
    return lambda x: np.asarray(np.clip(slope * x + middle, 0.0, 1.0))


PARAMETRIC: Mapping[str, Callable[[Node], Function]] = {
    "Clip": _clip,
    "Elu": _below_zero("alpha", 1.0, np.expm1),
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _below_zero("alpha", 0.01, lambda x: x),
    "PRelu": _below_zero("alpha", 0.0, lambda x: x),
}
"""Functions of every element that depend on attributes or constants."""
VARIADIC = {"Max": "Max", "Min": "Min", "Sum": "Add"}
"""Nodes of any number of operands, and their equivalents for two."""
