"""Every nonlinear unit's distance from float64."""

import numpy as np
import pytest

from celosia.arch.formats import FORMATS
from celosia.arch.functions import FUNCTIONS
from celosia.generators.studies import accuracy
from celosia.generators.studies.accuracy import accuracy_report, polynomial_bound, softmax_rows
from celosia.sim.softmax import softmax


def test_every_unit_is_within_its_bound():
    told = []
    report = accuracy_report(rows=4000, seed=3, progress=lambda *state: told.append(state))
    assert list(report) == [
        *("gelu_erf", "gelu_tanh", "silu", "relu", "sigmoid", "tanh", "exp"),
        *("gelu_erf_16", "gelu_tanh_16", "silu_16", "sigmoid_16", "tanh_16", "exp_16"),
        *("gelu_erf_16_ranges", "gelu_tanh_16_ranges", "silu_16_ranges"),
        *("sigmoid_16_ranges", "tanh_16_ranges", "exp_16_ranges"),
        *("softmax", "layernorm", "rmsnorm"),
        *(f"weights_{name}" for name in FORMATS),
        *(f"weights_nested_{bits}" for bits in (8, 4, 2)),
        *("kv4_pairs", "kv4_whole", "values_block"),
        *("low_rank", "activations_int16", "products_int16"),
    ]
    for name, measured in report.items():
        assert measured["max_lsb"] <= measured["bound_lsb"], name
        # Rounding alone errs by nearly half a step: less would mean that nothing was compared.
        assert measured["max_lsb"] > 0.45, name
        assert (name, measured["cases"], measured["cases"]) in told
    assert report["softmax"]["cases"] == 4000
    assert report["weights_nf4"]["bound_lsb"] > report["weights_ternary"]["bound_lsb"] == 0.5
    assert report["gelu_erf_16"]["cases"] == 3 * 65536


def test_a_report_depends_on_its_seed_only():
    assert accuracy_report(rows=600, seed=1) == accuracy_report(rows=600, seed=1)


def test_rows_are_checked():
    message = "^Accuracy rows must be a positive integer, not 0$"
    with pytest.raises(ValueError, match=message):
        accuracy_report(rows=0)


@pytest.mark.parametrize(
    ("name", "reach", "side", "least", "most"),
    [
        ("gelu_erf", 8.0, (-1.0, 1.0), 0.55, 0.65),
        ("gelu_erf", 25.0, (-1.0, 1.0), 0.6, 0.8),
        ("gelu_erf", 25.0, (-1.0, 0.32), 0.9, 1.2),
        ("gelu_erf", 25.0, (-1.0, 0.16), 1.3, 1.7),
        ("silu", 25.0, (-1.0, 0.16), 0.7, 1.2),
        ("tanh", 48.0, (-1.0, 1.0), 4.0, 80.0),
        ("sigmoid", 48.0, (-1.0, 1.0), 1.0, 5.5),
        ("exp", 48.0, (-1.0, 1.0), 10.0, 40.0),
        ("gelu_erf", 8.0, (-1.0, 0.01), 10.0, 700.0),
    ],
)
def test_coarse_ranges_have_a_bound(name, reach, side, least, most):
    """The error is large where a segment is long beside the range of results, and is foretold."""
    error, bound = accuracy._range_errors(name, reach, side)
    assert least < error <= bound < most


def test_the_bound_follows_the_step_of_the_result():
    """Half the step doubles the loss of interpolation, and half the segment takes an eighth."""
    rounding = accuracy._ROUNDING
    whole, finer, shorter = (
        polynomial_bound(FUNCTIONS["tanh"], x_scale, y_scale, 0, -1.0, 1.0) - rounding
        for x_scale, y_scale in ((2**-12, 2**-6), (2**-12, 2**-7), (2**-13, 2**-6))
    )
    assert finer == pytest.approx(2 * whole)
    assert shorter == pytest.approx(whole / 8, rel=0.05)


def test_probabilities_are_within_their_bound():
    """2**-15 of themselves, and half a step of Q0.24 for those that are as small."""
    random = np.random.default_rng(5)
    smallest = 0
    for kind in range(4):
        q, mask = softmax_rows(kind, 60, 300, random)
        top = np.where(mask, q, -(1 << 20)).max(axis=1, keepdims=True)
        weights = np.exp2(np.where(mask, q - top, -(1 << 20)) / 256)
        total = weights.sum(axis=1, keepdims=True)
        exact = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        error = np.abs(softmax(q, mask) / 2.0**24 - exact)
        assert (error <= 2.0**-15 * exact + 2.0**-25).all()
        smallest += int((error > 2.0**-15 * exact).sum())
    assert smallest > 100, "the second part is needed"
