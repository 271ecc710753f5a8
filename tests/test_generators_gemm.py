"""Products as programs: the golden machine against plain NumPy, on every preset."""

import numpy as np
import pytest

from celosia.arch.isa import REGISTERS, Engine
from celosia.arch.presets import PRESETS
from celosia.generators.lower.encoder_compiler import Options, compile_quantized
from celosia.generators.studies.gemm_bench import (
    bench_gemm,
    bench_shapes,
    product_model,
    random_gemm,
    run_product,
)
from celosia.generators.studies.gemm_shapes import SHAPES, shapes_named
from celosia.sim.checker import check
from celosia.sim.flow import run
from celosia.sim.interpreter import Interpreter
from celosia.sim.requantize import requantize
from tests.support.configurations import FOR_ENCODERS
from tests.support.longer import longer


@pytest.mark.parametrize("preset", [PRESETS[name] for name in FOR_ENCODERS], ids=FOR_ENCODERS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 23, 5), (33, 40, 29)])
def test_products_are_exact(preset, shape):
    """The first run, and one that finds the weights on the chip."""
    m, k, n = shape
    gemm = random_gemm(preset, np.random.default_rng(5), m=m, k=k, n=n)
    compiled = compile_quantized(product_model(gemm), preset, Options())
    sums = (gemm.a - gemm.a_zero) @ gemm.b
    bounds = preset.operand_min, preset.operand_max
    expected = requantize(sums, gemm.bias, gemm.multiplier, gemm.shift, gemm.o_zero, *bounds)
    for name, entry in compiled.entries.items():
        check(compiled.words, preset, entry.pc)
        product, _ = run_product(gemm, compiled, Interpreter(preset), name)
        np.testing.assert_array_equal(product, expected)
    np.testing.assert_array_equal(gemm.expected, expected)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((1, 1 << 20, 1), r"^A sum of k = 1048576 products could overflow the accumulator: max_k"),
        ((1, 0, 1), r"^Size k of a product must be positive, not 0$"),
    ],
)
def test_refusals(sizes, message):
    m, k, n = sizes
    with pytest.raises(ValueError, match=message):
        random_gemm(PRESETS["small"], np.random.default_rng(1), m=m, k=k, n=n)


def test_the_table_of_shapes_fits_medium_and_fills_its_array():
    config = PRESETS["medium"]
    assert len(SHAPES) == len({shape.name for shape in SHAPES}) >= 20
    for shape in SHAPES:
        tiles = -(-shape.k // config.array.rows) * -(-shape.n // config.array.cols)
        assert shape.k * shape.n / (tiles * config.elements) > 0.85
        assert shape.k <= config.accumulators.longest_sum


def test_shapes_are_benched_by_name():
    assert shapes_named(("all",)) == [*SHAPES]
    chosen = shapes_named(("minilm scores", "stories15m k"))
    assert [shape.name for shape in chosen] == ["minilm scores", "stories15m key"]
    steps = []
    report = bench_shapes(
        PRESETS["medium"],
        lambda config, _: Interpreter(config),
        chosen,
        update=lambda *step: steps.append(step),
    )
    assert steps == [(0, 2), (1, 2)]
    assert report["mismatches"] == 0
    assert report["lowest_utilization"] is None  # the golden machine has no clock
    assert [result["ideal_cycles"] for result in report["shapes"]] == [2048, 41472]


@pytest.mark.parametrize(
    ("preset", "changes", "shape"),
    [
        ("tiny", {}, (20, 40, 300)),
        ("tiny", {}, (1, 1000, 90)),
        ("tiny", {"program_depth": 4096}, (40, 600, 72)),
        ("odd", {}, (23, 150, 310)),
        ("small", {}, (130, 128, 1000)),
        *longer(("small", {}, (65, 700, 200))),
    ],
)
def test_products_larger_than_the_scratchpad_are_exact(preset, changes, shape):
    """The operands, the result or both lie in blocks that come and leave one by one."""
    config = PRESETS[preset].replace(**changes)
    m, k, n = shape
    report = bench_gemm(config, lambda config, _: Interpreter(config), m=m, k=k, n=n)
    assert report["mismatches"] == 0
    assert report["counters"]["macs"] == m * k * n


@pytest.mark.parametrize(
    ("preset", "changes", "shape", "kinds", "cycles"),
    [
        ("medium", {}, (64, 64, 64), {"input_last": True}, (2059, 1063)),
        ("medium", {}, (197, 64, 197), {}, (13018, 10283)),
        ("small", {"program_depth": 1024}, (64, 1024, 256), {"reloads": True}, (265955, 262167)),
        (
            "small",
            {"program_depth": 512},
            (64, 1024, 256),
            {"reloads": True, "loop_parts": True},
            (269772, 264547),
        ),
    ],
)
def test_the_array_pauses_little(preset, changes, shape, kinds, cycles):
    """Parameters, drains, or an input without room on the chip do not stop it for long."""
    config = PRESETS[preset].replace(**changes)
    m, k, n = shape
    gemm = random_gemm(config, np.random.default_rng(1), m=m, k=k, n=n)
    compiled = compile_quantized(product_model(gemm), config, Options())
    assert {name: getattr(compiled.plan, name) for name in kinds} == kinds
    prediction = compiled.expect(compiled.run(), 40)
    registers = [0] * REGISTERS
    steps = zip(run(compiled.words, 0, registers), prediction.timeline, strict=True)
    spans = [span for step, span in steps if step.engine == Engine.MATRIX]
    assert (prediction.cycles, spans[-1][1] - spans[0][0]) == cycles
    outputs, _ = run_product(gemm, compiled, Interpreter(config))
    np.testing.assert_array_equal(outputs, gemm.expected)


def test_a_microcoded_machine_counts_no_window() -> None:
    message = "^Products are timed by counters of the matrix engine, which micro lacks$"
    with pytest.raises(ValueError, match=message):
        bench_gemm(PRESETS["micro"], lambda *_: pytest.fail("a machine was made"), m=1, k=1, n=1)
