"""Models on a board with SDRAM, to its pins: the data that leave the scratchpad, and that come."""

import json
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.presets import load
from celosia.cli.bench_pins import decode_at_pins
from celosia.cli.board import opened
from celosia.fpga.boards import Board, get_board, with_sdram
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import SHAPES, untrained
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.quantize.options import Quantization
from celosia.tb.machine.memory_timing import ONCHIP
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.inference import infer
from celosia.tb.verify.random_models import random_inputs, random_weights

pytestmark = pytest.mark.skipif(
    bool(missing_tools("verilator")), reason="Verilator is not installed"
)

LLAMA = TextDescription(
    name="llama", vocabulary=400, positions=32, dim=24, layers=3, heads=2, ffn=44
)
ENCODER = ModelDescription(
    name="encoder", tokens=32, features=16, dim=48, layers=1, heads=2, ffn=128, classes=10
)


@pytest.fixture(scope="module")
def board() -> Board:
    return with_sdram(get_board("ulx3s_25f"))


@pytest.fixture(scope="module")
def config(board: Board) -> Config:
    return board.config.replace(
        rows=4,
        rotary=True,
        counters=True,
        lanes=2,
        acc_depth=512,
        program_depth=8192,
        scratchpad_bytes=8192,
        param_depth=128,
    )


@pytest.mark.slow
def test_a_decoder_of_which_nothing_stays_is_bound_by_its_memory(board, config) -> None:
    decoder = untrained(LLAMA, Quantization(texts=1, length=12))
    figures = decode_at_pins(decoder, board, config, context=16, position=15)
    assert (figures["mismatches"], figures["tensors"]) == (0, 1)
    assert figures["loaded_bytes"] > figures["weight_bytes"] + 2 * 3 * 15 * 24
    assert figures["reached_share"] > 0.8
    assert figures["reading_share"] > 0.9
    assert 0 < figures["reading_cycles"] < figures["cycles"]


@pytest.mark.slow
def test_a_decoder_runs_out_of_ddr3() -> None:
    board = with_sdram(get_board("orangecrab_25f"))
    wide = board.config.replace(
        mem_width=64,
        cols=8,
        rotary=True,
        lanes=2,
        acc_depth=512,
        program_depth=8192,
        counters=True,
    )
    decoder = untrained(LLAMA, Quantization(texts=1, length=12))
    figures = decode_at_pins(decoder, board, wide, context=16, position=15)
    assert (figures["mismatches"], figures["tensors"]) == (0, 1)
    assert figures["loaded_bytes"] > figures["weight_bytes"] + 2 * 3 * 15 * 24
    # Short bursts: the model is small.
    assert figures["reached_share"] > 0.5
    assert (figures["reading_cycles"], figures["reading_share"], figures["moving_share"]) == (
        None,
    ) * 3


@pytest.mark.slow
def test_blocks_of_an_encoder_leave_for_the_sdram(board, config) -> None:
    rng = np.random.default_rng(1)
    inputs = random_inputs(rng, ENCODER)
    compiled = compile_model(
        ENCODER, random_weights(rng, ENCODER), inputs, config, Options(search=False)
    )
    assert compiled.spilled_bytes > 0
    with opened(board, config, bytes(compiled.image)) as (running, device):
        ran = infer(device, compiled, inputs[:1], ONCHIP)
        moved = running.traffic()
    assert (ran.mismatches, ran.tensors) == (0, 1)
    assert ran.spent["stored"] * config.mem_bytes > compiled.spilled_bytes
    # Each word is so many columns of the chip, at most one a cycle.
    words = ran.spent["loaded"] + ran.spent["stored"]
    columns = moved["reading_columns"] + moved["other_columns"]
    assert columns * board.peak_bytes == words * config.mem_bytes
    assert 0.9 < moved["reading_columns"] / moved["reading_cycles"] <= 1
    assert moved["other_columns"] <= moved["other_cycles"]
    # It is busy longer than it counts: 36 cycles, 122 were seen beside much other work.
    assert ran.cycles <= moved["cycles"] < 1.01 * ran.cycles


def test_what_cannot_be_is_refused(celosia) -> None:
    for words, message in (
        (("--layers", "7"), "Layers of stories15M must be from 0 to 6, not 7"),
        (("--position", "256", "--layers", "1"), "Position must be from 0 to 255, not 256"),
        (("--clock", "0"), "The clock must be above 0 and at most 1000 MHz, not 0"),
        (
            ("minilm",),
            f"Model minilm must be one of {', '.join(SHAPES)}, or an encoder with --inputs",
        ),
        (
            ("minilm", "--inputs", "a.txt", "--layers", "1"),
            "Option --layers is not for minilm, which is an encoder",
        ),
    ):
        options = ("--board", "ulx3s_25f", *words)
        code, output, errors = celosia("bench", "pins", *options)
        assert (code, output, errors) == (2, "", f"celosia: {message}\n")


def board_toml(celosia) -> str:
    code, output, _ = celosia("configs", "--board", "ulx3s_85f", "--memory", "sdram")
    assert code == 0
    return output


def test_a_boards_configuration_is_written(celosia, tmp_path: Path) -> None:
    toml = tmp_path / "machine.toml"
    toml.write_text(board_toml(celosia), encoding="utf-8")
    assert load(str(toml)) == with_sdram(get_board("ulx3s_85f")).config
    code, _, errors = celosia("configs", "--memory", "sdram")
    assert (code, errors) == (2, "celosia: Option --memory needs --board\n")


@pytest.mark.long
@pytest.mark.parametrize(("weights", "share"), [("int8", 0.9), ("int4", 0.87)])
def test_a_model_of_15_million_parameters_decodes_at_the_pins(
    celosia, weights: str, share: float
) -> None:
    options = (
        "--board",
        "ulx3s_85f",
        "--quantize",
        f"weights={weights}",
        "--json",
    )
    code, output, errors = celosia("bench", "pins", *options)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["layers"], report["position"]) == (0, 6, 128)
    assert report["reached_share"] > 0.95
    assert report["weights_share"] > share * report["reached_share"]


@pytest.mark.long
def test_the_same_decodes_out_of_ddr3(celosia) -> None:
    options = ("--board", "orangecrab_85f", "--position", "100", "--json")
    code, output, errors = celosia("bench", "pins", *options)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["layers"], report["position"]) == (0, 6, 100)
    assert report["reached_share"] > 0.9
    assert report["weights_share"] > 0.9 * report["reached_share"]


@pytest.mark.long
def test_minilm_runs_out_of_the_sdram(celosia) -> None:
    options = ("minilm", "--inputs", "examples/paragraphs.txt", "--json")
    code, output, errors = celosia("bench", "pins", "--board", "ulx3s_85f", *options)
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["tokens"]) == (0, 128)
    assert report["sentences_per_second"] > 4.0
    assert report["reading_share"] > 0.8
