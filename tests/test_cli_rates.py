"""Cycles of boards' machines, counted by the complete top level in a simulation."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from celosia.arch.config import Config
from celosia.arch.errors import RunError
from celosia.arch.link import fingerprint
from celosia.arch.presets import PRESETS
from celosia.cli.rates import inference_rates, rates, token_rates
from celosia.fpga.boards import get_board, with_sdram
from celosia.running import run_files
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.memory_timing import ONCHIP
from celosia.tb.machine.toolchain import missing_tools
from tests.support.decoders import HELD, LLAMA

BOARD = replace(get_board("ulx3s_85f", "uart"), memory_bytes=1 << 11)
MODEL = LLAMA.replace(name="short", vocabulary=601, positions=256)
CONFIG = HELD.replace(
    scratchpad_bytes=16384,
    scratchpad_banks=2,
    mem_width=32,
    mem_addr_width=25,
    max_row=24,
    lanes=4,
)
needs_verilator = pytest.mark.skipif(
    bool(missing_tools("verilator")), reason="Verilator is not installed"
)


def test_where_weights_do_not_stay_no_token_is_counted() -> None:
    assert token_rates(PRESETS["small"], BOARD) == {}
    assert token_rates(PRESETS["story_85f"].replace(weight_depth=2048), BOARD) == {}


@pytest.mark.slow
@needs_verilator
def test_inferences_are_those_of_the_complete_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celosia.cli.rates.COUNT", 1)
    board = get_board("icebreaker")
    figures = rates(board.config, board, 21.0)
    near = run_files("digits", board.config, "verilator", count=1, timing=ONCHIP).figures
    cycles = figures["cycles_per_inference"]
    assert figures == {
        "cycles_per_inference": cycles,
        "inferences_per_second": round(21e6 / cycles, 1),
        "configuration": f"{fingerprint(board.config):08x}",
    }
    # The memory on the chip is asked for each word alone here.
    assert cycles == pytest.approx(near["cycles_per_inference"], rel=0.005)


def test_an_output_that_is_another_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = SimpleNamespace(figures={"mismatches": 1, "cycles_per_inference": 7.0})
    monkeypatch.setattr("celosia.cli.rates.run_files", lambda *_, **__: ran)
    monkeypatch.setattr("celosia.cli.rates.opened", lambda *_: nullcontext((None, None)))
    with pytest.raises(
        RunError, match=r"^1 of 4 outputs of digits on small are not the golden model's$"
    ):
        inference_rates(PRESETS["small"], BOARD)


def test_scores_that_are_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """A machine of whose memory the host reads another bit."""

        def __init__(self, config: Config):
            self.own = Interpreter(config)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.own, name)

        def read_memory(self, addr: int, count: int) -> bytes:
            first, *rest = self.own.read_memory(addr, count)
            return bytes([first ^ 1, *rest])

    monkeypatch.setattr("celosia.cli.rates.TEXT_MODEL", MODEL)
    monkeypatch.setattr(
        "celosia.cli.rates.opened", lambda _, config, __: nullcontext((None, Other(config)))
    )
    with pytest.raises(RunError, match=r"^The scores of short on held are not the golden model's$"):
        token_rates(CONFIG.replace(scratchpad_bytes=1 << 16), BOARD)


def test_one_text_is_counted_where_two_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celosia.cli.rates.TEXT_MODEL", MODEL)
    monkeypatch.setattr("celosia.cli.rates._run", lambda program, _: 100 + program.batch)
    roomy = CONFIG.replace(scratchpad_bytes=1 << 16)
    both = token_rates(roomy.replace(weight_depth=470), BOARD)
    assert (both["cycles_per_token"], both["cycles_per_token_two_texts"]) == (101, 51)
    single = token_rates(roomy.replace(weight_depth=469), BOARD)
    assert single["cycles_per_token"] == 101
    assert not any("two_texts" in name for name in single)


@pytest.mark.long  # an inference of the complete top is counted above
@needs_verilator
def test_tokens_are_those_of_the_complete_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celosia.cli.rates.TEXT_MODEL", MODEL.replace(vocabulary=101))
    near = rates(CONFIG.replace(scratchpad_bytes=1 << 16), BOARD, 50.0)
    assert near["tokens_per_second"] == round(50e6 / near["cycles_per_token"], 1)
    assert (near["text_model"], near["token_position"]) == ("short", 128)
    half = near["cycles_per_token_two_texts"]
    assert near["tokens_per_second_two_texts"] == round(50e6 / half, 1)
    assert near["cycles_per_token"] / 2 < half < near["cycles_per_token"]
    assert (near["cycles_per_inference"], near["inferences_per_second"]) == (None, None)
    assert near["no_inference"].startswith("Model digits needs max_row of at least 32, but")


@pytest.mark.long
@needs_verilator
def test_tokens_out_of_an_sdram_wait_for_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celosia.cli.rates.TEXT_MODEL", MODEL)
    near = rates(CONFIG.replace(scratchpad_bytes=1 << 16), BOARD, 50.0)
    far = rates(CONFIG, with_sdram(BOARD), 80.0)
    assert far["tokens_per_second"] == round(80e6 / far["cycles_per_token"], 1)
    # Two rows come from the chip, in some 20 cycles each.
    assert 20 < far["cycles_per_token"] - near["cycles_per_token"] < 150
