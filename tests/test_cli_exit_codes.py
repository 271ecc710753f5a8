"""Exit codes: 1 where a result differs from its reference, whatever the command."""

import json

import numpy as np
import pytest

from celosia.cli.bench_all import Case, measure
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.toolchain import missing_tools

GOLDEN = ("--sim", "golden")
GEMM = ("bench", "gemm", "--config", "tiny", *GOLDEN, "3x4x5")
SHAPES = ("bench", "gemm", *GOLDEN, "--config", "small", "minilm scores")
RUN = ("run", "digits", *GOLDEN, "--count", "2")
TEXT = ("run", "tales", "--prompt", "the fox", "--steps", "2", *GOLDEN)
ICARUS = ("--config", "tiny", "--sim", "icarus")
ATTENTION = ("bench", "attention", *ICARUS)
DECODE = ("bench", "decode", *ICARUS, "--set", "lanes=2")
SPARSE = ("bench", "gemm", "--config", "tiny", *GOLDEN, "--set", "sparse_lanes=2")

needs_icarus = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")


def damage_writes(monkeypatch) -> None:
    """Make the golden machine's vector engine write one element of every tensor wrong."""
    write = Interpreter._write

    def damaged(self, step, name, values, wide):
        values = np.array(values)
        values.flat[0] ^= 1
        return write(self, step, name, values, wide)

    monkeypatch.setattr(Interpreter, "_write", damaged)


@pytest.mark.parametrize(
    "words",
    [
        GEMM,
        SHAPES,
        (*SPARSE, "20x3", "--sparsity", "0.5"),
        RUN,
        TEXT,
        pytest.param((*ATTENTION, "3x4"), marks=needs_icarus),
        pytest.param((*DECODE, "8x8x5"), marks=needs_icarus),
    ],
    ids=["gemm", "shapes", "sparse", "run", "text", "attention", "decode"],
)
def test_a_wrong_element_is_exit_code_1(celosia, monkeypatch, words) -> None:
    damage_writes(monkeypatch)
    code, output, errors = celosia(*words, "--json")
    assert (code, errors.count("Traceback")) == (1, 0)
    assert json.loads(output)["mismatches"] > 0


@pytest.mark.parametrize("model", ["digits", "tales"])
def test_a_wrong_program_is_not_written(celosia, monkeypatch, tmp_path, model) -> None:
    damage_writes(monkeypatch)
    code, _, errors = celosia("compile", model, "--out", tmp_path / "out")
    assert (code, "differ" in errors, [*tmp_path.iterdir()]) == (1, True, [])


def test_an_error_over_its_bound_is_exit_code_1(celosia, monkeypatch) -> None:
    report = {"gelu_erf": {"max_lsb": 0.9, "bound_lsb": 0.5}}
    monkeypatch.setattr("celosia.cli.accuracy.accuracy_report", lambda *_given: report)
    assert celosia("verify", "accuracy", "--rows", "10", "--json")[0] == 1


def test_a_line_of_all_benchmarks_carries_its_mismatches(monkeypatch) -> None:
    result = {"mismatches": 2, "cycles": 5, "ideal_cycles": 4}
    done = type("Done", (), {"returncode": 1, "stdout": json.dumps(result)})
    monkeypatch.setattr("celosia.cli.child.subprocess.run", lambda *_given, **_named: done)
    assert measure(Case("bench x", "cycles"))["mismatches"] == 2
