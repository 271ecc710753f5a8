"""Trained models on the circuit: every tensor of every image, on presets and random machines."""

import itertools
from contextlib import contextmanager

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.presets import PRESETS
from celosia.generators.lower.encoder_compiler import Options
from celosia.running import run_files
from tests.support.configurations import FOR_ENCODERS
from tests.support.longer import longer

MODELS = ("digits", "digits-simplified")
SEED = 2023
QUICK = Options(search=False)
LARGE = ("medium", "wide", "story")


def machine_for_digits(rng: np.random.Generator) -> Config:
    """Draw a machine with every unit that the digits' models need, and room for them."""
    rows, cols = (int(size) for size in rng.integers(1, 12, 2))
    draw = rng.integers
    lanes = int(draw(1, min(cols, 5) + 1))
    return Config.of(
        name="drawn",
        rows=rows,
        cols=cols,
        lanes=lanes,
        weight_depth=int(draw(2, 7)),
        acc_width=int(draw(28, 33)),
        scratchpad_bytes=1 << int(draw(15, 18)),
        scratchpad_banks=1 << int(draw(1, 3)),
        acc_depth=int(draw(600, 2000)),
        mem_width=8 << int(draw(0, 4)),
        program_depth=4096,
        param_depth=1024,
        table_slots=int(draw(2, 4)),
        max_row=int(draw(64, 200)),
        queue_depth=int(draw(1, 4)),
        zero_points=bool(draw(2)),
        operand_gating=bool(draw(2)),
        fused=cols % lanes == 0,
        sleep=bool(draw(2)),
    )


def run_case(model: str, config: Config, simulator: str, count: int) -> dict:
    titles: list[str] = []

    @contextmanager
    def show(title: str):
        titles.append(title)
        yield lambda _done, _total: None

    result = run_files(model, config, simulator, count=count, show=show).figures
    cycles = titles[-1].partition(f", {simulator}, ")[2].removesuffix(" cycles in the first run")
    if config.micro is None:
        # Runs after the first find weights that stay on the chip.
        later = (count - 1) * result["again"].get("predicted_cycles", result["predicted_cycles"])
        first = count * result["predicted_cycles"] - later
        assert int(cycles.replace(",", "")) == pytest.approx(first, rel=0.01)
    assert result["mismatches"] == 0
    assert result["tensors"] > 20 * count
    return result


@pytest.mark.parametrize(
    ("model", "count"), [(MODELS[0], 100), *longer((MODELS[0], 500), (MODELS[1], 500))]
)
def test_the_quantized_model_is_as_good_as_the_float_model(model, count):
    result = run_files(model, PRESETS["small"], "golden", count=count, options=QUICK).figures
    assert result["count"] == count
    assert result["float_accuracy"] >= {"digits": 0.97, "digits-simplified": 0.955}[model]
    assert abs(result["accuracy"] - result["float_accuracy"]) <= max(0.005, 1 / count)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "model"),
    [
        pytest.param(
            preset, model, marks=[pytest.mark.long] * (preset in LARGE or place % 2 != turn)
        )
        for place, preset in enumerate(FOR_ENCODERS)
        for turn, model in enumerate(MODELS)
    ],
)
def test_presets(preset, model):
    result = run_case(model, PRESETS[preset], "verilator", 2)
    if PRESETS[preset].micro is not None:
        return  # it counts its cycles, and nothing else
    assert 0 < result["utilization"] < 1
    assert result["read_bytes"] == result["least_bytes"]
    cycles = result["cycles_per_inference"]
    assert abs(result["predicted_cycles"] - cycles) <= 0.03 * cycles


@pytest.mark.long  # test_cli_fuzz.py has a random machine that runs an encoder
@pytest.mark.parametrize(("number", "model"), [*itertools.product(range(5), MODELS)])
def test_random_configurations(number, model):
    rng = np.random.default_rng([SEED, number])
    config = machine_for_digits(rng)
    print(f"seed {SEED}, {number}: {config}")
    result = run_case(model, config, "verilator", 2)
    cycles = result["cycles_per_inference"]
    assert abs(result["predicted_cycles"] - cycles) <= 0.05 * cycles


@pytest.mark.long  # test_generators_fused.py has an encoder under Icarus
@pytest.mark.parametrize("model", MODELS)
def test_icarus(model):
    run_case(model, PRESETS["small"], "icarus", 1)


def test_an_unknown_simulator_is_refused_before_any_work():
    with pytest.raises(ValueError, match=r"^Unknown simulator 'modelsim'; known are "):
        run_files("no model", PRESETS["small"], "modelsim")
