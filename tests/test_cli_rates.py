"""Tokens a second of machines that a language model stays on."""

import pytest

from arch.presets import PRESETS
from cli.rates import token_rates
from tb.toolchain import missing_tools

MEMORY = 1 << 11


def test_where_weights_do_not_stay_no_token_is_counted():
    assert token_rates(PRESETS["small"], MEMORY, 50.0) == {}
    assert token_rates(PRESETS["story_85f"].replace(weight_depth=2400), MEMORY, 50.0) == {}


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_tokens_are_those_of_the_circuit():
    found = token_rates(PRESETS["story_85f"], MEMORY, 50.0)
    assert found["text_model"] == "stories260K"
    assert found["tokens_per_second"] == round(50e6 / found["cycles_per_token"], 1)
    assert 2500 < found["cycles_per_token"] <= 6000
