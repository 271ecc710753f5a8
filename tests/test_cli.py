"""The command: its files, its output, and one sentence for each error."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.numpy import load_file, save_file

from celosia.arch.presets import PRESETS, load
from celosia.arch.support.cache import ROOT
from celosia.fpga.devices import FAMILIES
from celosia.fpga.synthesis import prepare
from celosia.generators.frontend.weights import model_names
from celosia.generators.verilog.units import UNITS
from celosia.tb.machine.toolchain import missing_tools

MODEL = ROOT / "generators" / "models" / "digits"


Command = Callable[..., tuple[int, str, str]]


def as_a_user(*words: str) -> tuple[int, str, str]:
    """Run the command as a user does; return its exit code, its output and its errors."""
    done = subprocess.run(
        [sys.executable, "-c", "from celosia.cli.main import main; main()", *words],
        capture_output=True,
        cwd=ROOT,
        encoding="utf-8",
    )
    return done.returncode, done.stdout, done.stderr


def printed(command: Command, *words: str | Path) -> str:
    """Run a command that must not fail; return its output."""
    code, output, errors = command(*words)
    assert (code, errors) == (0, "")
    return output


def numbers(command: Command, *words: str | Path) -> dict:
    """Run a command with --json; return the one object that it prints."""
    output = printed(command, *words, "--json")
    assert output.count("\n") == 1
    return json.loads(output)


def refused(command: Command, *words: str | Path) -> str:
    """Run a command that must refuse; return its one sentence."""
    code, output, errors = command(*words)
    assert (code, output) == (2, "")
    assert errors.startswith("celosia: ")
    assert errors.count("\n") == 1
    return errors.removeprefix("celosia: ").rstrip("\n")


def test_as_a_user() -> None:
    output = printed(as_a_user, "configs")
    assert all(name in output for name in PRESETS)
    sentence = "Field rows must be from 1 to 64, not 0"
    assert refused(as_a_user, "generate", "--set", "rows=0", "--out", "nowhere") == sentence
    assert refused(as_a_user, "fly") == "No such command 'fly'."


@pytest.mark.parametrize(("family", "pairs", "large"), [("ice40", 5, 2), ("gowin", 0, 0)])
def test_generate_for_a_family_gives_what_its_builds_read(
    celosia, tmp_path: Path, family: str, pairs: int, large: int
) -> None:
    """The microcoded machine: products in SB_MAC16, memories that hold nothing at first."""

    def text(*words: str) -> str:
        printed(celosia, "generate", "--config", "micro", *words, "--out", tmp_path)
        return (tmp_path / "celosia_accelerator.v").read_text()

    plain, made = text(), text("--device", family)
    assert (
        made == prepare(plain, next(f for f in FAMILIES.values() if f.name == family))[0] != plain
    )
    assert made.count("SB_MAC16 #(") == pairs
    assert made.count('ram_style = "huge"') == large
    assert plain.count("initial for (_entry") == made.count("initial for (_entry") + 2


def test_generate_writes_verilog_configuration_and_description(celosia, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    words = ("generate", "--config", "tiny", "--set", "rows=3", "--unit", "softmax")
    printed(celosia, *words, "--out", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(before) == ["celosia_softmax.json", "celosia_softmax.v", "config.toml"]
    assert b"module celosia_softmax (" in before["celosia_softmax.v"]
    assert load(str(folder / "config.toml")) == PRESETS["tiny"].replace(rows=3)
    described = json.loads(before["celosia_softmax.json"])
    for port in described["ports"]:
        assert f" {port['name']}" in before["celosia_softmax.v"].decode(), port
    printed(celosia, *words, "--out", folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_accelerator_is_described_with_registers_and_instructions(
    celosia, tmp_path: Path
) -> None:
    words = ("generate", "--config", "tiny", "--set", "norm=false", "--out", tmp_path / "out")
    printed(celosia, *words)
    described = json.loads((tmp_path / "out" / "celosia_accelerator.json").read_text("utf-8"))
    assert {"ID", "CONTROL", "STATUS"} <= {entry["name"] for entry in described["registers"]}
    names = {entry["name"] for entry in described["instructions"]}
    assert "MATMUL" in names
    assert "NORM" not in names, "an absent unit's instruction does not exist"
    request = next(p for p in described["ports"] if p["name"] == "mem_read__request__payload")
    assert [field["name"] for field in request["fields"]] == ["addr", "last"]


def test_the_accelerator_behind_a_bus_is_described_with_it(celosia, tmp_path: Path) -> None:
    words = ("generate", "--config", "tiny", "--bus", "axi4@0x80000000")
    printed(celosia, *words, "--out", tmp_path / "out")
    described = json.loads((tmp_path / "out" / "celosia_accelerator.json").read_text("utf-8"))
    assert described["bus"] == {
        "protocol": "axi4",
        "prefix": "m_axi_",
        "data_width": 32,
        "addr_width": 32,
        "base": 0x8000_0000,
        "bytes": 1 << 28,
    }
    assert {"ID", "CONTROL", "STATUS"} <= {entry["name"] for entry in described["registers"]}
    ports = {port["name"]: port for port in described["ports"]}
    assert ports["m_axi_araddr"]["direction"] == "output"
    assert ports["m_axi_araddr"]["width"] == 32
    assert all(port["meaning"] for name, port in ports.items() if name.startswith("m_axi_"))
    assert not [name for name in ports if name.startswith(("mem_read", "mem_write"))]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("generate", "--config", "huge", "--out", "{out}"),
            "Unknown configuration 'huge'; use a TOML file or one of "
            "micro, tiny, small, medium, wide, odd, story, story_85f",
        ),
        (
            ("generate", "--set", "rows=0", "--out", "{out}"),
            "Field rows must be from 1 to 64, not 0",
        ),
        (
            ("generate", "--set", "rows=two", "--out", "{out}"),
            "Field rows must be an integer, not 'two'",
        ),
        (
            ("generate", "--set", "max_k=100000", "--out", "{out}"),
            "Field acc_width must be at least 34 so that a sum of max_k = 100000 products of "
            "9-bit operands cannot overflow, but acc_width is 32",
        ),
        (
            ("generate", "--unit", "warp", "--out", "{out}"),
            f"Unknown unit 'warp'; known are {', '.join(UNITS)}",
        ),
        (
            ("run", "digits", "--sim", "modelsim"),
            "Unknown simulator 'modelsim'; known are verilator, icarus, golden",
        ),
        (
            ("run", "letters", "--sim", "golden"),
            "Unknown model 'letters'; use a folder with model.toml and weights.safetensors, or "
            f"one of {', '.join(model_names())}",
        ),
        (
            ("bench", "gemm", "--config", "tiny", "0x1x1"),
            "Size m of a product must be positive, not 0",
        ),
        (
            ("bench", "gemm", "--config", "tiny", "1x4000x1"),
            "A sum of k = 4000 products could overflow the accumulator: max_k is 2048",
        ),
        (
            ("bench", "gemm", "bert-base up", "bert-huge"),
            "No shape is named 'bert-huge'; known models are bert-base, gpt2-medium, minilm, "
            "stories15m, tinyllama, vit-base, vit-tiny",
        ),
        (
            ("bench", "attention", "8x0", "--config", "tiny"),
            "Size head_dim of attention must be from 1 to 16384, not 0",
        ),
        (
            ("bench", "gemm", "8x8", "--sparsity", "2"),
            "Sparsity must be from 0 to 1, not 2.0",
        ),
        (
            ("bench", "decode", "0x8x8"),
            "Size dim of a layer must be from 1 to 4096, not 0",
        ),
        (
            ("run", "digits", "--memory", "40/0"),
            "Memory timing interval must be from 1 to 100000, not 0",
        ),
        (
            ("trace", "digits", "--sim", "golden", "--out", "{out}/trace.json"),
            "The golden machine has no clock to trace; use verilator or icarus",
        ),
        (
            ("generate", "--bus", "pci", "--out", "{out}"),
            "Unknown bus 'pci'; known are native, axi4, wishbone",
        ),
        (
            ("generate", "--bus", "axi4@there", "--out", "{out}"),
            "Base of external memory must be an integer, not 'there'",
        ),
        (
            ("generate", "--bus", "axi4", "--unit", "softmax", "--out", "{out}"),
            "Only the accelerator can have its memory behind a bus, not softmax",
        ),
        (
            ("trace", "digits", "--context", "9", "--out", "{out}/trace.json"),
            "Option --context needs --inputs",
        ),
        (("fly",), "No such command 'fly'."),
    ],
)
def test_what_is_wrong_is_one_sentence(
    celosia, words: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    assert refused(celosia, *(word.format(out=tmp_path / "out") for word in words)) == sentence
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_field_is_refused_with_those_that_exist(celosia, tmp_path: Path) -> None:
    sentence = refused(celosia, "generate", "--set", "rosw=4", "--out", tmp_path / "out")
    assert sentence.startswith("Unknown field 'rosw'; did you mean rows? known are acc_depth, ")


def test_a_folder_that_cannot_be_written_stays_as_it_was(celosia, tmp_path: Path) -> None:
    occupied = tmp_path / "taken"
    occupied.write_text("mine", encoding="utf-8")
    words = ("generate", "--config", "tiny", "--unit", "requantizer", "--out")
    assert refused(celosia, *words, occupied) == f"Cannot write to {occupied}: it is not a folder"
    assert refused(celosia, *words, occupied / "below").startswith(
        f"Cannot write to {occupied / 'below'}: "
    )
    assert occupied.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.iterdir()) == [occupied]
    if os.geteuid() != 0:
        tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert (
            refused(celosia, *words, tmp_path) == f"Cannot write to {tmp_path}: permission denied"
        )
        tmp_path.chmod(stat.S_IRWXU)


def test_a_read_only_file_system_is_named(celosia, tmp_path: Path, monkeypatch) -> None:
    mounted = os.statvfs(tmp_path)
    flags = SimpleNamespace(f_flag=mounted.f_flag | os.ST_RDONLY)
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    words = ("generate", "--config", "tiny", "--unit", "requantizer", "--out", tmp_path)
    assert refused(celosia, *words) == (f"Cannot write to {tmp_path}: its file system is read-only")


def test_a_broken_model_is_refused(celosia, tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_bytes((MODEL / "model.toml").read_bytes())
    weights = tmp_path / "weights.safetensors"
    whole = (MODEL / "weights.safetensors").read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert str(weights) in refused(celosia, "run", tmp_path, "--sim", "golden", "--count", "1")
    tensors = load_file(MODEL / "weights.safetensors")
    name = sorted(tensors)[0]
    save_file({key: value for key, value in tensors.items() if key != name}, weights)
    assert name in refused(celosia, "run", tmp_path, "--sim", "golden", "--count", "1")


def test_a_model_too_large_for_a_configuration_is_refused(celosia) -> None:
    words = ("run", "digits", "--config", "tiny", "--set", "program_depth=16", "--sim", "golden")
    assert "program_depth is 16" in refused(celosia, *words)


def test_a_trained_model_runs_on_the_golden_machine(celosia) -> None:
    report = numbers(
        celosia, "run", "digits", "--config", "small", "--sim", "golden", "--count", "20"
    )
    assert report["mismatches"] == 0
    assert report["count"] == 20
    assert report["accuracy"] >= 0.9


@pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
def test_products_of_any_size_run_on_the_circuit(celosia) -> None:
    for m, k, n, sim in ((1, 1, 1, "icarus"), (9, 11, 5, "icarus"), (8, 84, 100, "verilator")):
        words = ("--config", "tiny", f"{m}x{k}x{n}", "--sim", sim)
        report = numbers(celosia, "bench", "gemm", *words)
        assert report["mismatches"] == 0
        assert report["ideal_cycles"] == -(-m * k * n // 16)
        assert report["utilization"] == pytest.approx(m * k * n / 16 / report["cycles"])
        assert report["counters"]["array_product"] < report["cycles"] < report["total_cycles"]


@pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
def test_attention_of_a_compiled_model_is_measured(celosia) -> None:
    size = ("--config", "tiny", "2x8x4")
    report = numbers(celosia, "bench", "attention", *size, "--sim", "icarus")
    assert report["mismatches"] == 0
    assert report["ideal_cycles"] == 2 * 2 * 4 * 8 * 8 / 16
    assert report["ideal_cycles"] < report["cycles"] < report["whole"]["cycles"]


def test_a_bench_writes_a_timeline(celosia, tmp_path: Path) -> None:
    words = ("bench", "gemm", "--config", "tiny", "9x9x9")
    file = tmp_path / "gemm.json"
    report = numbers(celosia, *words, "--sim", "icarus", "--trace", file)
    shown = json.loads(file.read_text("utf-8"))
    total = report["total_cycles"]
    assert shown["otherData"]["cycles"] == total == sum(report["where"].values())
    names = [event["name"] for event in shown["traceEvents"]]
    assert "MATMUL drain" in names
    sentence = refused(celosia, *words, "--sim", "golden", "--trace", file)
    assert sentence == "The golden machine has no clock to trace"


@pytest.mark.slow
def test_trace_writes_a_timeline_and_pictures(celosia, tmp_path: Path) -> None:
    file = tmp_path / "new" / "run.json"
    report = numbers(celosia, "trace", "digits-simplified", "--config", "tiny", "--out", file)
    assert report["mismatches"] == 0
    assert sum(report["where"].values()) == report["cycles"]
    assert report["files"] == [
        str(file.with_name(name))
        for name in ("run.json", "run.roofline.png", "run.utilization.png")
    ]
    shown = json.loads(file.read_text("utf-8"))
    assert shown["otherData"]["cycles"] == report["cycles"]
    commands = [event for event in shown["traceEvents"] if "k" in event.get("args", {})]
    assert len(commands) > 20
    for name in report["files"][1:]:
        assert Path(name).read_bytes().startswith(b"\x89PNG")
