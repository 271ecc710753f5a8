"""Published TFLite vectors, run as whole programs.

The golden machine and the Verilated circuit must both give every published element.
"""

from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.lower.encoder_compiler import Options, compile_quantized
from celosia.generators.studies.gemm_bench import Gemm, product_model, run_product
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.simulated import VerilatorMachine

VECTORS = Path(__file__).parent / "data" / "tflite"

CONFIG = PRESETS["small"]
MACHINES = {"golden": Interpreter, "verilator": VerilatorMachine}


@pytest.fixture(scope="module", params=MACHINES)
def machine(request):
    # With its trace port, the circuit is that of many tests.
    return MACHINES[request.param](CONFIG.replace(trace=True))


def vector(name: str) -> dict[str, np.ndarray]:
    with np.load(VECTORS / f"{name}.npz") as data:
        return {key: data[key] for key in data.files}


def product(a, b, b_zero, **parameters) -> Gemm:
    """Return a product whose B has a zero point, [k, n], as one without.

    B - b_zero has more values than an INT8. It is the sum of two matrices of them, which are
    multiplied with the same rows: A stands twice, and one half of B below the other.
    """
    values = b - b_zero
    upper = values.clip(-128, 127)
    halves = [upper, values - upper] if b_zero else [values]
    return Gemm(a=np.tile(a, len(halves)), b=np.concatenate(halves), **parameters)


def run_case(gemm: Gemm, machine, expected) -> int:
    """Compile a product as a model, run it, and compare every element."""
    compiled = compile_quantized(product_model(gemm), CONFIG, Options(search=False))
    for entry in compiled.entries:
        output, _ = run_product(gemm, compiled, machine, entry)
        np.testing.assert_array_equal(output, expected)
    return output.size


@pytest.mark.parametrize("name", ["matmul", "matmul_a_transposed", "matmul_b_transposed"])
def test_batch_matmul(name, machine):
    data = vector(name)
    checked = 0
    for batch in np.ndindex(data["y"].shape[:2]):
        a, b = (
            data[side][tuple(np.minimum(batch, np.array(data[side].shape[:2]) - 1))].astype(int)
            for side in "ab"
        )
        n = data["y"].shape[-1]
        gemm = product(
            a.T if data["a_transpose"] else a,
            b.T if data["b_transpose"] else b,
            int(data["b_zero_point"]),
            bias=np.zeros(n, np.int64),
            multiplier=np.full(n, data["multiplier"]),
            shift=np.full(n, data["shift"]),
            a_zero=int(data["a_zero_point"]),
            o_zero=int(data["y_zero_point"]),
        )
        checked += run_case(gemm, machine, data["y"][batch])
    assert checked == data["y"].size


@pytest.mark.parametrize("name", ["linear", "linear_per_channel", "linear_weight_zero_point"])
def test_fully_connected(name, machine):
    data = vector(name)
    assert (data["y_min"], data["y_max"]) == (-128, 127)
    gemm = product(
        data["x"].astype(int),
        data["w"].astype(int).T,
        int(data["w_zero_point"]),
        bias=data["bias"].astype(int),
        multiplier=data["multiplier"].astype(int),
        shift=data["shift"].astype(int),
        a_zero=int(data["x_zero_point"]),
        o_zero=int(data["y_zero_point"]),
    )
    run_case(gemm, machine, data["y"])
