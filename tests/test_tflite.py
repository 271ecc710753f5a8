"""Published TFLite vectors, run as whole programs.

The golden machine and the Verilated circuit must both give every published element.
"""

from pathlib import Path

import numpy as np
import pytest

from arch.presets import PRESETS
from generators.bench.gemm import Gemm, compile_gemm
from generators.bench.gemm_bench import run_program
from sim.interpreter import Interpreter
from tb.machine import VerilatorMachine

VECTORS = Path(__file__).parent / "data" / "tflite"

CONFIG = PRESETS["small"].replace(mem_addr_width=16)
MACHINES = {"golden": Interpreter, "verilator": VerilatorMachine}


@pytest.fixture(scope="module", params=MACHINES)
def machine(request):
    return MACHINES[request.param](CONFIG)


def vector(name: str) -> dict[str, np.ndarray]:
    with np.load(VECTORS / f"{name}.npz") as data:
        return {key: data[key] for key in data.files}


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
        gemm = Gemm(
            a=a.T if data["a_transpose"] else a,
            b=b,
            bias=np.zeros(n, np.int64),
            multiplier=np.full(n, data["multiplier"]),
            shift=np.full(n, data["shift"]),
            a_zero=int(data["a_zero_point"]),
            b_zero=int(data["b_zero_point"]),
            o_zero=int(data["y_zero_point"]),
            b_transpose=bool(data["b_transpose"]),
        )
        found, _ = run_program(compile_gemm(gemm, CONFIG), machine)
        np.testing.assert_array_equal(found, data["y"][batch])
        checked += found.size
    assert checked == data["y"].size


@pytest.mark.parametrize("name", ["linear", "linear_per_channel", "linear_weight_zero_point"])
def test_fully_connected(name, machine):
    data = vector(name)
    assert (data["y_min"], data["y_max"]) == (-128, 127)
    gemm = Gemm(
        a=data["x"].astype(int),
        b=data["w"].astype(int),
        bias=data["bias"].astype(int),
        multiplier=data["multiplier"].astype(int),
        shift=data["shift"].astype(int),
        a_zero=int(data["x_zero_point"]),
        b_zero=int(data["w_zero_point"]),
        o_zero=int(data["y_zero_point"]),
        b_transpose=True,
    )
    found, _ = run_program(compile_gemm(gemm, CONFIG), machine)
    np.testing.assert_array_equal(found, data["y"])
