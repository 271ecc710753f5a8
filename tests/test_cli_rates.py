"""Tokens a second of machines that a language model stays on."""

from dataclasses import replace

import pytest

from arch.presets import PRESETS
from cli.rates import token_rates
from fpga.boards import get_board, with_sdram
from tb.toolchain import missing_tools
from tests.test_generators_text_program import HELD, LLAMA

BOARD = replace(get_board("ulx3s_85f", "uart"), memory_bytes=1 << 11)


def test_where_weights_do_not_stay_no_token_is_counted():
    assert token_rates(PRESETS["small"], BOARD, 50.0) == {}
    assert token_rates(PRESETS["story_85f"].replace(weight_depth=2400), BOARD, 50.0) == {}


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_tokens_are_those_of_the_circuit():
    found = token_rates(PRESETS["story_85f"], BOARD, 50.0)
    assert found["text_model"] == "stories260K"
    assert found["tokens_per_second"] == round(50e6 / found["cycles_per_token"], 1)
    assert 2500 < found["cycles_per_token"] <= 6000


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_tokens_with_sdram_are_those_at_its_pins(monkeypatch):
    model = LLAMA.replace(name="short", vocabulary=601, positions=256)
    monkeypatch.setattr("cli.rates.TEXT_MODEL", model)
    config = HELD.replace(
        scratchpad_bytes=16384,
        scratchpad_banks=2,
        mem_width=32,
        mem_addr_width=25,
        max_row=24,
        lanes=4,
    )
    near = token_rates(config.replace(scratchpad_bytes=1 << 16), BOARD, 80.0)
    far = token_rates(config, with_sdram(BOARD), 80.0)
    assert far["tokens_per_second"] == round(80e6 / far["cycles_per_token"], 1)
    # Two rows come from the chip, in some 20 cycles each.
    assert 20 < far["cycles_per_token"] - near["cycles_per_token"] < 150
