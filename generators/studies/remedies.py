"""Quantization error of each layer, and the quantization option that reduces this error most."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_sources import TextSource
from celosia.generators.graph.quantized import IntegerGraph
from celosia.generators.lower.equipment import equipped
from celosia.generators.quantize.options import INT8, MIXED, NARROW_BITS, Quantization
from celosia.generators.quantize.parting import compare_models
from celosia.generators.quantize.quantize import quantize_calibrated, quantize_model

_BALANCES = (0.0, 0.5, 0.7, 1.0)
_LESS = 0.95
"""Ratio of errors below which an option counts as an improvement."""


def remedies(
    source: Source | TextSource,
    config: Config,
    options: Quantization,
    samples: Sequence[Any] | None,
    inputs: Sequence[NDArray[Any]],
) -> list[dict[str, Any]]:
    """Return for each layer its error, and the quantization option that reduces the error most.

    Errors are those of the layer's output on ``inputs``: root mean square, relative to the float
    output. ``samples`` are calibration inputs. The option is None if no option reduces the error by
    more than 5 %.
    """
    make = _maker(source, config, samples, options)
    errors_by_option = {
        name: _errors(source, model, inputs) for name, model in _tried(make, options)
    }
    now = errors_by_option.pop("")
    lines = []
    for layer, error in now.items():
        lower = {name: errors[layer] for name, errors in errors_by_option.items()}
        best = min(lower, key=lambda name: lower[name])
        helps = lower[best] < _LESS * error
        lines.append(
            {
                "layer": layer,
                "error": error,
                "option": best if helps else None,
                "error with it": lower[best] if helps else None,
            }
        )
    return lines


_Make = Callable[[Quantization], IntegerGraph]


def _maker(
    source: Source | TextSource,
    config: Config,
    samples: Sequence[Any] | None,
    options: Quantization,
) -> _Make:
    """Return the function that quantizes a model with given options."""
    if isinstance(source, TextSource):
        sampled = source.sample(samples, options)
        text, floats = source.description, source.weights
        return lambda other: quantize_calibrated(text, floats, sampled, None, other)
    assert samples is not None, "an encoder is calibrated on inputs"
    model, weights = source.description, source.weights
    return lambda other: quantize_model(model, weights, samples, equipped(config, other), other)


def _tried(make: _Make, options: Quantization) -> Iterator[tuple[str, IntegerGraph]]:
    """Yield the quantized model unchanged, with the name "", and with each other option."""
    yield "", make(options)
    wanted: list[tuple[str, Any]] = [
        *(("balance", value) for value in _BALANCES),
        ("percentile", 99.9),
        ("activations", MIXED),
        ("wide_functions", True),
        ("weights", INT8),
        ("kv_bits", NARROW_BITS),
        ("deferred", False),
    ]
    for name, value in wanted:
        beside: dict[str, Any] = {"whole": None, "block": 0} if name == "kv_bits" else {}
        if name == "weights":
            beside = {"group": 0, "low_rank": 0, "chosen": {}}
        try:
            other = replace(options, **{name: value}, **beside)
            if other != options:
                yield f"{name}={value!r}", make(other)
        except InputError:
            continue


def _errors(
    source: Source | TextSource, model: IntegerGraph, inputs: Sequence[NDArray[Any]]
) -> dict[str, float]:
    """Return the error of the last known tensor of each layer."""
    sources: Sequence[list[int]] = ()
    if isinstance(source, TextSource) and source.description.source_layers:
        sources = [tokens.tolist() for tokens in inputs]
        inputs = [np.array([source.description.start])] * len(sources)
    errors = compare_models(model, source.weights, inputs, sources).errors
    layers = {"embedding": model.before}
    layers |= {f"layer {number}": ops for number, ops in enumerate(model.layers)}
    layers |= {"output": model.after}
    return {
        layer: known[-1]
        for layer, ops in layers.items()
        if (known := [errors[op.target.name] for op in ops if op.target.name in errors])
    }
