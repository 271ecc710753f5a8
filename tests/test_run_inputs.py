"""Models from ONNX files on a machine, with inputs from a file."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.lower.encoder_compiler import Options
from celosia.running import run_files
from celosia.tb.models.run_inputs import Files

EXAMPLES = Path(__file__).parents[1] / "examples" / "onnx"
TINY = PRESETS["tiny"].replace(norm=True, softmax=True, program_depth=4096)
SEED = 5

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("onnx") is None, reason="the package onnx is not installed"
)


def write_inputs(path: Path, name: str, count: int) -> Path:
    """Write random inputs of an example."""
    rng = np.random.default_rng(SEED)
    file = path / "inputs.npy"
    shapes = {"patches": (7, 5), "rows": (6, 12), "text": (9,)}
    values = rng.normal(0, 1, (count, *shapes[name]))
    np.save(file, rng.integers(0, 20, (count, 9)) if name == "text" else values)
    return file


def run_case(path: Path, name: str, config, simulator: str, count: int, options=None):
    file = write_inputs(path, name, count + 8)
    model = str(EXAMPLES / f"{name}.onnx")
    result = run_files(
        model, config, simulator, Files(inputs=file), count=count, options=options
    ).figures
    assert result["mismatches"] == 0
    assert result["count"] == count
    assert len(result["similarities"]) == count - 1
    assert result["cosine_worst"] > 0.97
    return result


@pytest.mark.parametrize("name", ["patches", "rows", "text"])
def test_graphs_on_the_golden_machine(name, tmp_path) -> None:
    result = run_case(tmp_path, name, TINY, "golden", 5)
    assert result["lengths"] == [{"patches": 7, "rows": 6, "text": 9}[name]] * 5


def test_quantization_is_an_option(tmp_path) -> None:
    choices = [
        None,
        *(
            Options(search=False, **changes)
            for changes in ({"per_channel": False}, {"percentile": 99.9}, {"balance": 0.0})
        ),
    ]
    cosines = [
        run_case(tmp_path, "rows", TINY, "golden", 3, each)["cosine_mean"] for each in choices
    ]
    assert len(set(cosines)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["patches", "text"])
def test_graphs_on_the_circuit(name, tmp_path) -> None:
    result = run_case(tmp_path, name, PRESETS["small"], "verilator", 2)
    assert result["cycles"] > result["ideal_cycles"]


def test_too_few_inputs(tmp_path) -> None:
    file = write_inputs(tmp_path, "rows", 2)
    message = "Count of inputs must be from 1 to 2, not 3"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run_files(str(EXAMPLES / "rows.onnx"), TINY, "golden", Files(inputs=file), count=3)
