"""Every nonlinear unit's distance from float64."""

import pytest

from arch.formats import FORMATS
from generators.accuracy import accuracy_report


def test_every_unit_is_within_its_bound():
    told = []
    report = accuracy_report(rows=4000, seed=3, progress=lambda *state: told.append(state))
    assert list(report) == [
        *("gelu_erf", "gelu_tanh", "silu", "relu", "sigmoid", "tanh", "exp"),
        *("gelu_erf_16", "gelu_tanh_16", "silu_16", "sigmoid_16", "tanh_16", "exp_16"),
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
