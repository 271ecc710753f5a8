"""Checks that a model and the options of quantization fit each other."""

import numpy as np

from celosia.arch.errors import InputError
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.weights import Floats, Weights
from celosia.generators.graph.network import Description
from celosia.generators.quantize.options import INT8, MIXED, NARROW_BITS, Quantization
from celosia.sim.matmul import WIDE_LONGEST


def check_finite(model: Description, weights: Weights) -> None:
    """Raise :class:`InputError` if a weight of a model is not finite."""
    for name, values in weights.items():
        if not np.isfinite(values).all():
            place = tuple(int(index) for index in np.argwhere(~np.isfinite(values))[0])
            raise InputError(
                f"Tensor {name} of model {model.name} must hold finite numbers, but it has "
                f"{np.asarray(values)[place]} at {list(place)}; train or export the model again"
            )


def check_tensor(model: Description, name: str, values: Floats) -> None:
    """Raise :class:`InputError` if a tensor's calibration values exceed the range of 32-bit floats.

    ``name`` is the tensor's name for the message.
    """
    largest = float(np.abs(values).max())
    if not largest <= float(np.finfo(np.float32).max):
        raise InputError(
            f"Tensor {name} of model {model.name} reaches {largest:.3g} on the calibration inputs, "
            f"which 32-bit floats do not hold: weights before it are too large"
        )


def check_options(model: Description, options: Quantization) -> None:
    """Raise :class:`InputError` if a model does not support one of the options of quantization."""
    if options.activations == MIXED:
        _check_mixed(model)
    if not isinstance(model, TextDescription):
        return
    if model.source_layers and options.kv_bits < NARROW_BITS:
        raise InputError(
            f"Bits of keys and values must be {NARROW_BITS} where source_layers is not 0, "
            f"not {options.kv_bits}"
        )
    _check_places(model, options)
    if options.deferred:
        _check_deferred(model, options)


def _check_mixed(model: Description) -> None:
    """Refuse mixed activations for a model with INT16 values or sums that may exceed 32 bits."""
    bits = NARROW_BITS if isinstance(model, TextDescription) else 16
    if not model.values:
        raise InputError(
            f"Activations mixed need values of 8 bits, but model {model.name} has values false: "
            f"its values are the input of attention, of 16 bits"
        )
    if model.head_dim > WIDE_LONGEST:
        raise InputError(
            f"Activations mixed sum head_dim products of 16 bits by {bits}; "
            f"32 bits hold {WIDE_LONGEST} of these, but model {model.name} has head_dim "
            f"{model.head_dim}"
        )


def _check_places(model: TextDescription, options: Quantization) -> None:
    """Refuse more token positions than a model with a fixed limit has."""
    if model.bounded and options.places > model.positions:
        raise InputError(
            f"Model {model.name} has at most {model.positions} places, as from there on its layers "
            f"attend to a window or its positions are others, not {options.places}"
        )


def _check_deferred(model: TextDescription, options: Quantization) -> None:
    """Refuse models and options that deferred norms do not support."""
    if model.head_norms:
        raise InputError(
            f"Deferred norms need head_norms false, but model {model.name} normalizes queries and "
            f"keys of each head"
        )
    if model.norm != "rmsnorm" or model.source_layers:
        raise InputError(
            f"Deferred norms need norm rmsnorm and source_layers 0, but model {model.name} has "
            f"norm {model.norm} and source_layers {model.source_layers}"
        )
    if model.placement != "pre" or not model.final_norm:
        raise InputError(
            f"Deferred norms need placement pre and final_norm true, but model {model.name} has "
            f"placement {model.placement} and final_norm {str(model.final_norm).lower()}"
        )
    needs = {
        "folded": True,
        "kv_bits": NARROW_BITS,
        "weights": INT8,
        "low_rank": 0,
        "activations": INT8,
    }
    for name, needed in needs.items():
        if getattr(options, name) != needed:
            raise InputError(f"Deferred norms need {name} {needed}, not {getattr(options, name)}")
