"""Trained numbers that no integers stand for: the tensor is named, or a warning has a remedy."""

import re
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.frontend.weights import Weights
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import Parting, compare_models

SMALL = PRESETS["small"]
NORM = "layers.0.attention_norm"


def _changed(weights: Weights, name: str, change: Callable) -> dict[str, np.ndarray]:
    copies = {key: np.array(values, np.float64) for key, values in weights.items()}
    change(copies[name])
    return copies


def _one(value: float, place: int = 0) -> Callable:
    return lambda values: values.flat.__setitem__(place, value)


def _encoder(weights: Weights, **options) -> tuple[Artefact, Parting]:
    model = load_source("digits").description
    inputs = np.random.default_rng(1).uniform(0, 1, (4, model.tokens, model.features))
    compiled = compile_model(model, weights, inputs, SMALL, Options(search=False, **options))
    return compiled, compare_models(compiled.graph, weights, list(inputs))


def _decoder(weights: Weights, form: str = "int8") -> Parting:
    source = replace(load_text("tales"), weights=weights)
    return source.calibrate(None, Quantization(texts=2, length=8, weights=form))[1]


def _narrow(weights: Weights) -> Parting:
    """Return the result of :func:`_decoder` with weights of four bits."""
    return _decoder(weights, form="int4")


def _uneven(values: np.ndarray) -> None:
    values *= 2.0 ** np.linspace(-30, 10, len(values))[:, None]


@pytest.mark.parametrize(
    ("run", "model", "name", "change", "sentence"),
    [
        (
            _encoder,
            "digits",
            "layers.1.key.weight",
            _one(np.nan, 7),
            r"Tensor layers\.1\.key\.weight of model digits must hold finite numbers, but it has "
            r"nan at \[0, 7\]; train or export the model again",
        ),
        (
            _decoder,
            "tales",
            "layers.1.key.bias",
            _one(-np.inf, 2),
            r"Tensor layers\.1\.key\.bias of model tales must hold finite numbers, but it has "
            r"-inf at \[2\]; train or export the model again",
        ),
        (
            _encoder,
            "digits",
            f"{NORM}.weight",
            _one(1e6),
            r"Tensor layers\.0\.context of model digits cannot be requantized: Requantization "
            r"factor must be less than 2\*\*30, not \d+\.\d+; rescale the model's weights, or "
            r"calibrate on inputs like those to come \(--calibration\)",
        ),
        (
            _encoder,
            "digits",
            "layers.0.query.weight",
            lambda values: values.__imul__(1e300),
            r"Tensor layers\.0\.query of model digits reaches \d\.\d+e\+30\d on the calibration "
            r"inputs, which 32-bit floats do not hold: weights before it are too large",
        ),
        (
            _decoder,
            "tales",
            "layers.0.up.weight",
            lambda values: values.__imul__(1e300),
            r"Tensor layers\.0\.up of model tales reaches \d\.\d+e\+30\d on the calibration "
            r"inputs, which 32-bit floats do not hold: weights before it are too large",
        ),
        (
            _narrow,
            "tales",
            "layers.1.query.weight",
            _uneven,
            r"Layer layers\.1\.query of model tales cannot be requantized: its bias is \S+ of its "
            r"products' steps of \S+ or more; store its weights in int8 \(--quantize "
            r"weights=int8\), whose steps fit biases",
        ),
    ],
)
def test_the_tensor_is_named(run, model: str, name: str, change: Callable, sentence: str) -> None:
    source = load_source(model) if run is _encoder else load_text(model)
    with (
        pytest.raises(InputError, match=f"^{sentence}$"),
        warnings.catch_warnings(action="error"),
    ):
        run(_changed(source.weights, name, change))


def test_steps_of_int8_fit_large_biases() -> None:
    weights = _changed(load_text("tales").weights, "layers.1.query.weight", _uneven)
    assert _decoder(weights).warning == ""


def test_columns_of_very_different_sizes_are_warned_of() -> None:
    """Gains of a norm's columns that the weights behind it take back change no float."""
    weights = {k: np.array(v, np.float64) for k, v in load_source("digits").weights.items()}
    scales = 2.0 ** np.linspace(-30, 10, len(weights[f"{NORM}.weight"]))
    for name in ("weight", "bias"):
        weights[f"{NORM}.{name}"] *= scales
    for name in ("query", "key", "value"):
        weights[f"layers.0.{name}.weight"] /= scales
    warning = _encoder(weights)[1].warning
    assert re.search(
        r"most at layers\.0\.\w+, which is \d+\.\d% off; columns of layers\.0\.attention_input "
        r"differ in size by \d\.\de\+1\d: give them ranges of their own \(--quantize "
        r"balance=1\), or rescale the weights before and behind it$",
        warning,
    )
    assert _encoder(weights, balance=1.0)[1].warning == ""


@pytest.mark.parametrize(("error", "warned"), [(0.19, False), (0.31, True)])
def test_outputs_of_one_column_are_compared_by_size(error: float, warned: bool) -> None:
    """The cosine of such rows is always 1."""
    apart = Parting(8, 1.0, 0.01, None, "layers.0.up", 0.25, output_error=error)
    wanted = (
        "integers part from floats on 8 calibration inputs: cosine 1.000, outputs 31% off; most at "
        "layers.0.up, which is 25.0% off; calibrate on inputs like those to come (--calibration)"
    )
    assert apart.warning == (wanted if warned else "")


def test_the_error_of_the_output_is_that_of_its_size() -> None:
    source = load_source("digits")
    compiled, apart = _encoder(source.weights)
    assert 0 < apart.output_error < 0.1
    assert compiled.graph.output.name == "output"
