"""The command within one process: results alone on standard output, refusals, files kept."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from celosia.arch.config import Config
from celosia.arch.errors import RunError
from celosia.arch.presets import PRESETS, load
from celosia.arch.support.cache import ROOT
from celosia.generators.verilog.units import UNITS
from celosia.tb.machine.toolchain import environment, missing_tools
from tests.support.standards import NO_NETS, refused_by_icarus, refused_by_slang

MODEL = ROOT / "generators" / "models" / "digits"
FIGURES = {"cycles", "ideal_cycles", "utilization", "mismatches"}
RUN = ("run", "digits", "--sim", "golden", "--count", "1")
GEMM = ("bench", "gemm", "--sim", "golden", "3x4x5")
SHAPES = ("bench", "gemm", "--sim", "golden", "--config", "small", "minilm scores")
SPARSE = ("bench", "gemm", "--sim", "golden", "--config", "tiny", "--set", "sparse_lanes=2")
SPARSE_LAYER = (*SPARSE, "20x3")

needs_icarus = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")


def check_refusal(result: tuple[int, str, str], part: str) -> None:
    code, output, errors = result
    assert (code, output) == (2, "")
    assert errors.startswith("celosia: ")
    assert errors.count("\n") == 1
    assert part in errors


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("configs",), set(PRESETS)),
        (RUN, FIGURES | {"accuracy", "cycles_per_inference", "cycles_per_second"}),
        (GEMM, FIGURES),
        (SHAPES, {"shapes", "lowest_utilization", "mismatches"}),
        ((*SPARSE_LAYER, "--sparsity", "0.5"), {"dense_cycles", "bits_per_weight"}),
        (
            ("compile", "digits", "--config", "tiny"),
            {"seconds", "processor_seconds", "peak_bytes", "predicted_cycles", "plan"},
        ),
        (("verify", "accuracy", "--rows", "200"), {"gelu_erf"}),
        pytest.param(
            ("test", "table", "--sim", "icarus"),
            {"benches", "failed"},
            marks=needs_icarus,
        ),
    ],
    ids=["configs", "run", "gemm", "shapes", "sparse", "compile", "accuracy", "test"],
)
def test_json_is_one_object_and_nothing_else(celosia, words, keys) -> None:
    code, output, _ = celosia(*words, "--json")
    assert code == 0
    assert output.count("\n") == 1
    report = json.loads(output)
    assert keys <= set(report)
    assert report.get("mismatches", 0) == 0
    assert report.get("failed", 0) == 0
    if "accuracy" in words:
        assert all(unit["max_lsb"] <= unit["bound_lsb"] for unit in report.values())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("generate",), "--out"),
        (("generate", "--frobnicate"), "No such option"),
        (("generate", "--set", "rows", "--out", "{out}"), "must look like FIELD=VALUE"),
        (
            ("generate", "--device", "xc7", "--out", "{out}"),
            "Unknown device 'xc7'; known are ecp5, ice40, gowin",
        ),
        (("generate", "--control", "apb", "--out", "{out}"), "Unknown control 'apb'"),
        (
            ("generate", "--unit", "table", "--control", "wishbone", "--out", "{out}"),
            "Only the accelerator can have its host port behind a bus, not table",
        ),
        (("generate", "--set", "rows=true", "--out", "{out}"), "Field rows must be an integer"),
        (("generate", "--set", "norm=1", "--out", "{out}"), "Field norm must be true or false"),
        (("generate", "--set", "acc_width=20", "--out", "{out}"), "Field acc_width"),
        (("generate", "--config", "{out}.toml", "--out", "{out}"), "No such file"),
        ((*RUN, "--count", "0"), "Count of images"),
        ((*RUN, "--count", "501"), "Count of images"),
        ((*RUN, "--count", "two"), "not a valid integer"),
        ((*RUN, "--context", "5"), "needs --inputs"),
        ((*RUN, "--inputs", "no such file"), "does not take texts; give its inputs as .npy"),
        ((*RUN, "--inputs", "none.npy"), "Cannot read inputs"),
        ((*RUN, "--quantize", "balance=2"), "Balance of columns"),
        ((*RUN, "--quantize", "percentile=40"), "Calibration percentile"),
        ((*RUN, "--inputs", "no such file"), "Model digits does not take texts"),
        (
            (*RUN, "--quantize", "group=32"),
            "Option group=32 needs a format of fewer bits in weights",
        ),
        (
            ("compile", "digits", "--quantize", "group=8", "--out", "{out}"),
            "Option group=8 needs a form",
        ),
        (
            ("run", "stories260k", "--quantize", "group=8"),
            "Option group=8 needs a format of fewer bits",
        ),
        (
            ("evaluate", "x", "--text", "no", "--quantize", "group=8"),
            "Option group=8 needs a format of fewer",
        ),
        (
            ("bench", "decode", "--quantize", "group=8", "--quantize", "weights=int8"),
            "weights, which is int8",
        ),
        (("bench", "decode", "--sparsity", "nan"), "Sparsity must be from 0 to 1, not nan"),
        ((*RUN, "--set", "norm=false"), "needs the unit norm"),
        ((*RUN, "--set", "mem_addr_width=8"), "mem_addr_width is 8"),
        ((*RUN, "--set", "scratchpad_bytes=1024"), "Model digits needs"),
        ((*GEMM, "--set", "max_k=3"), "max_k is 3"),
        ((*GEMM, "--seed", "-1"), "--seed"),
        ((*SPARSE, "0x3", "--sparsity", "0"), "Size k of a product must be positive"),
        ((*SPARSE, "9x3", "--sparsity", "0"), "A sparse matrix must have from 16 to"),
        (
            (*SPARSE_LAYER, "--set", "sparse_lanes=0", "--sparsity", "0"),
            "Skipping zero weights needs sparse_lanes",
        ),
        ((*SPARSE_LAYER, "--sparsity", "nan"), "Sparsity must be"),
        ((*SPARSE_LAYER, "--sparsity", "0", "--sim", "questa"), "Unknown simulator 'questa'"),
        (("verify", "accuracy", "--rows", "0"), "Rows must be positive"),
        (("test", "warp"), "Unknown unit 'warp'"),
        (("test", "--sim", "golden"), "Unknown simulator 'golden'"),
        (("test", "--waves", "{out}"), "exactly one unit"),
    ],
)
def test_refusals(celosia, tmp_path: Path, words, part) -> None:
    check_refusal(celosia(*(word.format(out=tmp_path / "out") for word in words)), part)
    assert contents(tmp_path) == {}


def test_failed_generation_changes_no_file(celosia, tmp_path: Path) -> None:
    words = ("generate", "--config", "tiny", "--unit", "requantizer", "--out", tmp_path)
    assert celosia(*words)[0] == 0
    before = contents(tmp_path)
    assert set(before) == {"celosia_requantizer.v", "celosia_requantizer.json", "config.toml"}
    check_refusal(celosia(*words, "--set", "rows=0"), "Field rows")
    check_refusal(celosia(*words, "--unit", "warp"), "Unknown unit")
    assert contents(tmp_path) == before
    # One file cannot be replaced: the others, which would change, are not replaced either.
    (tmp_path / "config.toml").unlink()
    (tmp_path / "config.toml").mkdir()
    (tmp_path / "celosia_requantizer.json").write_text("older")
    before = contents(tmp_path)
    check_refusal(celosia(*words), "it is a folder")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "words",
    [
        ("generate", "--config", "tiny", "--out", "{file}/below/deep"),
        ("test", "table", "--sim", "icarus", "--waves", "{file}/dump.fst"),
        ("demo", "{file}/picture.png"),
    ],
    ids=["generate", "waves", "picture"],
)
def test_a_place_below_a_file_is_refused_before_any_work(celosia, tmp_path: Path, words) -> None:
    if words[0] == "test" and missing_tools("icarus"):
        pytest.skip("Icarus is not installed")
    file = tmp_path / "file"
    file.write_text("mine")
    check_refusal(celosia(*(word.format(file=file) for word in words)), "is not a folder")
    assert contents(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        ("truncated", "not a safetensors file"),
        ("empty", "not a safetensors file"),
        ("absent", "Cannot read weights"),
        ("infinite", "finite"),
        ("reshaped", "must have the shape"),
        ("extra", "not one of the model's"),
        ("description", "is not TOML"),
    ],
)
def test_damaged_models(celosia, tmp_path: Path, damage: str, part: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    weights = folder / "weights.safetensors"
    tensors = load_file(weights)
    name = sorted(tensors)[0]
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-5])
    elif damage == "empty":
        weights.write_bytes(b"")
    elif damage == "absent":
        weights.unlink()
    elif damage == "infinite":
        save_file(tensors | {name: np.full_like(tensors[name], np.inf)}, weights)
    elif damage == "reshaped":
        save_file(tensors | {name: np.append(tensors[name], tensors[name])}, weights)
    elif damage == "extra":
        save_file(tensors | {"surplus": np.zeros(1)}, weights)
    else:
        (folder / "model.toml").write_text("dim = = 3")
    before = contents(folder)
    check_refusal(celosia("run", folder, "--sim", "golden", "--count", "1"), part)
    assert contents(folder) == before


def test_a_failing_bench_is_told_and_gives_exit_code_1(celosia, monkeypatch) -> None:
    module = "celosia.cli.test"
    celosia("test", "--help")

    def fail(component, **_arguments):
        component.elaborate(None)
        raise RunError("the end of a log")

    monkeypatch.setattr(sys.modules[module], "simulate", fail)
    monkeypatch.setattr(sys.modules[module], "check_simulator", lambda _name: None)
    code, output, errors = celosia("test", "table", "--sim", "icarus", "--json")
    assert code == 1
    assert json.loads(output)["failed"] == 1
    assert errors == "the end of a log\n"


def test_a_failing_simulation_is_no_traceback(celosia, monkeypatch) -> None:
    celosia("bench", "gemm", "--help")

    def fail(*_arguments, **_named):
        raise RunError("the end of a log")

    monkeypatch.setattr(sys.modules["celosia.cli.bench"], "bench_gemm", fail)
    assert celosia(*GEMM) == (1, "", "celosia: the end of a log\n")


def test_a_defect_of_ours_is_a_traceback_with_a_code_of_its_own(celosia, monkeypatch) -> None:
    celosia("bench", "gemm", "--help")

    def fail(*_arguments, **_named):
        raise ValueError("operands could not be broadcast")

    monkeypatch.setattr(sys.modules["celosia.cli.bench"], "bench_gemm", fail)
    code, output, errors = celosia(*GEMM)
    assert (code, output) == (70, "")
    assert "Traceback" in errors
    assert "operands could not be broadcast" in errors
    assert errors.endswith("celosia: this is a defect of celosia, not of what it was given\n")


def test_a_name_that_the_system_refuses_is_no_defect(celosia, monkeypatch) -> None:
    name = "a" * 300
    message = f"celosia: Cannot use {name}: File name too long; give another path, or ask its owner"
    for suffix in ("", ".onnx"):
        wanted = message.replace(name, name + suffix)
        assert celosia("inspect", name + suffix) == (2, "", f"{wanted}\n")

    def fail(*_arguments, **_named):
        raise PermissionError(errno.EACCES, "Permission denied", "/root/x")

    monkeypatch.setattr(Path, "is_dir", fail)
    wanted = "celosia: Cannot use /root/x: Permission denied; give another path, or ask its owner\n"
    assert celosia("inspect", "/root/x") == (2, "", wanted)


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit != "accelerator"])
def test_every_unit_is_generated_and_free_of_warnings(celosia, tmp_path: Path, unit: str) -> None:
    assert celosia("generate", "--config", "tiny", "--unit", unit, "--out", tmp_path)[0] == 0
    name = f"celosia_{unit}"
    described = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    assert described["module"] == name
    assert described["ports"]
    stored = load(str(tmp_path / "config.toml"))
    assert stored == Config.of(**described["configuration"]) == PRESETS["tiny"]
    source = tmp_path / f"{name}.v"
    lints = {
        "icarus": ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-o", os.devnull, source],
        "verilator": ["verilator", "--lint-only", "-Wall", "--quiet", "--top-module", name, source],
    }
    assert "\\" not in source.read_text("utf-8"), "no name is escaped"
    strict = tmp_path / "strict.v"
    strict.write_text(NO_NETS + source.read_text("utf-8"), encoding="utf-8")
    assert not refused_by_slang(strict)
    if not missing_tools("icarus"):
        assert refused_by_icarus(strict) == ""
    for simulator, command in lints.items():
        if missing_tools(simulator):
            continue
        done = subprocess.run(command, capture_output=True, env=environment(), encoding="utf-8")
        assert (done.returncode, done.stderr) == (0, ""), f"{unit} under {simulator}"


@pytest.mark.long
def test_the_fast_simulation_is_five_times_as_fast_as_cocotb(celosia) -> None:
    if missing_tools("verilator"):
        pytest.skip("Verilator is not installed")
    code, output, _ = celosia("bench", "harness", "--json")
    assert code == 0
    assert json.loads(output)["ratio"] >= 5
