"""Products as programs: the golden machine against plain NumPy, on every preset."""

import numpy as np
import pytest

from arch.presets import PRESETS
from generators.bench.gemm import Gemm, compile_gemm, parts_of
from generators.bench.gemm_bench import bench_gemm, bench_shapes
from generators.bench.gemm_shapes import SHAPES, shapes_named
from sim.checker import check
from sim.interpreter import Interpreter
from sim.requantize import requantize


def random_gemm(rng, m, k, n, *, zero_points=True, **flags) -> Gemm:
    a, b = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, n))
    return Gemm(
        a=a,
        b=b.T if flags.get("b_transpose") else b,
        bias=rng.integers(-1000, 1000, n),
        multiplier=rng.integers(1 << 30, 1 << 31, n),
        shift=rng.integers(-11, -6, n),
        a_zero=int(rng.integers(-128, 128)) * zero_points,
        b_zero=int(rng.integers(-128, 128)) * zero_points,
        o_zero=int(rng.integers(-128, 128)),
        **flags,
    )


def run_case(gemm: Gemm, config) -> None:
    program = compile_gemm(gemm, config)
    machine = Interpreter(config)
    machine.write_memory(0, program.image)
    machine.load_program(program.words)
    for pc in (program.load_pc, program.compute_pc, program.store_pc):
        check(program.words, config, pc)
        machine.start(pc)
    found = program.result(machine.read_memory(program.result_addr, program.result_bytes))
    a = gemm.a - gemm.a_zero
    b = (gemm.b.T if gemm.b_transpose else gemm.b) - gemm.b_zero
    expected = requantize(a @ b, gemm.bias, gemm.multiplier, gemm.shift, gemm.o_zero, -128, 127)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 23, 5), (33, 40, 29)])
def test_products_are_exact(preset, shape):
    rng = np.random.default_rng(5)
    for b_transpose in (False, True)[: 1 + preset.b_transpose]:
        flags = {"zero_points": preset.zero_points, "b_transpose": b_transpose}
        run_case(random_gemm(rng, *shape, **flags), preset)


@pytest.mark.parametrize(
    ("changes", "shape", "message"),
    [
        (
            {"max_k": 16},
            (1, 17, 1),
            "A sum of k = 17 products could overflow the accumulator: max_k is 16",
        ),
        (
            {"b_transpose": False},
            (1, 1, 1),
            "The product has b_transpose, which configuration small lacks",
        ),
        (
            {"param_depth": 1},
            (1, 1, 9),
            "The product needs 2 parameter words, but param_depth is 1",
        ),
        (
            {"program_depth": 16},
            (1, 1, 1),
            "The product needs a program of 60 words, but program_depth is 16",
        ),
        (
            {"scratchpad_bytes": 1024},
            (20, 20, 1),
            "Tensor A of 400 bytes does not fit a scratchpad bank of 256 bytes beside the other "
            "operands",
        ),
    ],
)
def test_refusals(changes, shape, message):
    gemm = random_gemm(np.random.default_rng(7), *shape, b_transpose=True)
    with pytest.raises(ValueError, match=r".") as caught:
        compile_gemm(gemm, PRESETS["small"].replace(**changes))
    assert str(caught.value) == message


def test_the_table_of_shapes_fits_medium_and_fills_its_array():
    config = PRESETS["medium"]
    assert len(SHAPES) == len({shape.name for shape in SHAPES}) >= 20
    for shape in SHAPES:
        tiles = -(-shape.k // config.rows) * -(-shape.n // config.cols)
        assert shape.k * shape.n / (tiles * config.elements) > 0.85
        assert shape.k <= config.max_k


def test_shapes_are_benched_by_name():
    chosen = shapes_named(("minilm scores", "stories15m k"))
    assert [shape.name for shape in chosen] == ["minilm scores", "stories15m key"]
    steps = []
    found = bench_shapes(
        PRESETS["medium"],
        lambda config, _: Interpreter(config),
        chosen,
        update=lambda *step: steps.append(step),
    )
    assert steps == [(0, 2), (1, 2)]
    assert found["mismatches"] == 0
    assert found["lowest_utilization"] is None  # the golden machine has no clock
    assert [result["ideal_cycles"] for result in found["shapes"]] == [2048, 41472]


@pytest.mark.parametrize("m", [1, 7, 16, 17, 64, 197])
@pytest.mark.parametrize("product", [1, 2, 8])
def test_the_last_rows_are_cut_into_parts_that_hide_their_load(m, product):
    parts = parts_of(m, 8, product, 1)
    assert sum(parts) == m
    assert len(parts) <= 3
    assert len(parts) == 1 or min(parts) >= 8


@pytest.mark.parametrize(
    ("preset", "changes", "shape"),
    [
        ("tiny", {}, (20, 40, 300)),
        ("tiny", {}, (1, 1000, 90)),
        ("tiny", {"program_depth": 4096}, (40, 600, 72)),
        ("odd", {}, (23, 150, 310)),
        ("small", {}, (65, 700, 200)),
        ("small", {}, (130, 128, 1000)),
    ],
)
def test_products_larger_than_the_scratchpad_are_exact(preset, changes, shape):
    """The operands, the result or both lie in blocks that come and leave one by one."""
    config = PRESETS[preset].replace(**changes)
    m, k, n = shape
    found = bench_gemm(config, lambda config, _: Interpreter(config), m=m, k=k, n=n)
    assert found["mismatches"] == 0
    assert found["counters"]["macs"] == m * k * n


def test_a_microcoded_machine_counts_no_window() -> None:
    message = (
        "^Products are timed by what the matrix engine counts, which micro, microcoded, lacks$"
    )
    with pytest.raises(ValueError, match=message):
        bench_gemm(PRESETS["micro"], lambda *_: pytest.fail("a machine was made"), m=1, k=1, n=1)
