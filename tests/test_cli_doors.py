"""Wrong input at every door: one sentence, exit code 2, before any work."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from celosia.arch.support.cache import ROOT

MODEL = ROOT / "generators" / "models" / "digits"
NPY = b"\x93NUMPY\x01\x00"
LONG = "x" * 300
GEMM = ("bench", "gemm", "--sim", "golden")
UNIT = ("--unit", "softmax", "--set", "softmax=false")
LLAMA = {
    "model_type": "llama",
    "vocab_size": 16,
    "max_position_embeddings": 32,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 12,
    "hidden_act": "silu",
}


def check_refusal(outcome: tuple[int, str, str], part: str) -> None:
    code, output, errors = outcome
    assert (code, output) == (2, ""), errors
    assert errors.startswith("celosia: ")
    assert errors.count("\n") == 1
    assert part in errors


def huge() -> bytes:
    """Return a file whose header is that of an array of 256 TB, without the array."""
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 42, 16)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("run", LONG), "is longer than a file's name can be"),
        (("run", "digits", "--inputs", LONG), "is longer than a file's name can be"),
        (("generate", "--out", LONG), "is longer than a file's name can be"),
        (("demo", "y/" * 3000), "is longer than a file's name can be"),
        (("generate", "--out", ""), "must name a file or a folder, not be empty"),
        (("trace", "digits", "--out", "a\nb"), "must not have control characters"),
        (("demo", "x.qqq"), "must end in .png or .svg or .pdf"),
        ((*GEMM, "1000000000x4x4"), "mem_addr_width = 28 bits"),
        ((*GEMM, "4x4x4", "--memory", "40/1000000000"), "must be from 1 to 100000"),
        ((*GEMM, "4x4x4", "--set", "max_k=3"), "max_k is 3"),
        ((*GEMM, "4x4x4", "--set", "rows=4\nnorm=false"), "must look like FIELD=VALUE"),
        (("verify", "accuracy", "--rows", "1000000000000"), "Rows must be at most"),
        (
            ("bench", "attention", "100000000x8"),
            "must be from 1 to 16384",
        ),
        (("bench", "decode", "--sim", "golden", "10000000x768x128"), "must be from 1 to 4096"),
        (
            ("bench", "gemm", "64x1000000000", "--sparsity", "0"),
            "The operands are",
        ),
        (("build", "--board", "icebreaker", "--clock", "1e9", "--out", "b"), "at most 1000 MHz"),
        (("build", "--board", "icebreaker", "--clock", "nan", "--out", "b"), "at most 1000 MHz"),
        (("generate", *UNIT, "--out", "b"), "Unit softmax is left out: softmax is false"),
        (("test", *UNIT[1:], "--sim", "icarus"), "Unit softmax is left out: softmax is false"),
    ],
)
def test_words_are_refused(celosia, tmp_path: Path, monkeypatch, words, part) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(celosia(*words), part)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "are not a NumPy array"),
        (NPY + b"\xff", "are not a NumPy array"),
        (huge(), "281474976710656 bytes, and 0 follow"),
    ],
    ids=["empty", "cut", "huge"],
)
def test_arrays_are_refused(celosia, tmp_path: Path, content, part) -> None:
    (tmp_path / "in.npy").write_bytes(content)
    words = ("run", "digits", "--sim", "golden", "--inputs", tmp_path / "in.npy")
    check_refusal(celosia(*words), part)


def test_nested_files_are_refused(celosia, tmp_path: Path) -> None:
    deep = "[" * 50_000 + "]" * 50_000
    (tmp_path / "c.toml").write_text(f"a = {deep}")
    check_refusal(celosia("generate", "--config", tmp_path / "c.toml", "--out", "o"), "not TOML")
    (tmp_path / "config.json").write_text(deep)
    check_refusal(celosia("run", tmp_path), "is not JSON")
    (tmp_path / "config.json").unlink()
    (tmp_path / "model.toml").write_text(f"a = {deep}")
    check_refusal(celosia("run", tmp_path, "--inputs", "x.npy"), "not TOML")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("layers = 100000000", "Model field layers must be at most 1000"),
        ("epsilon = nan", "Model field epsilon must be at most 1.0, not nan"),
        ("epsilon = inf", "Model field epsilon must be at most 1.0, not inf"),
    ],
)
def test_descriptions_are_refused(celosia, tmp_path: Path, line, part) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    lines = (folder / "model.toml").read_text("utf-8").splitlines()
    name = line.partition(" ")[0]
    changed = [line if old.partition(" ")[0] == name else old for old in lines]
    assert changed != lines
    (folder / "model.toml").write_text("\n".join(changed), encoding="utf-8")
    check_refusal(celosia("run", folder, "--sim", "golden", "--inputs", "x.npy"), part)


@pytest.mark.parametrize("factor", [1e300, 1e-200])
def test_weights_out_of_range_are_refused(celosia, tmp_path: Path, factor) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    file = folder / "weights.safetensors"
    save_file({k: factor * v.astype(np.float64) for k, v in load_file(file).items()}, file)
    words = ("run", folder, "--sim", "golden", "--inputs", "x.npy")
    check_refusal(celosia(*words), "must be 0 or from 1e-30 to 1e+30")


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": [1]},
        {"rope_theta": float("inf")},
        {"rope_theta": "a"},
        {"num_key_value_heads": 0},
        {"rms_norm_eps": [1]},
        {"rms_norm_eps": float("nan")},
        {"num_hidden_layers": 10**9},
        {"hidden_act": ["silu"]},
    ],
    ids=str,
)
def test_settings_are_refused(celosia, tmp_path: Path, change) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | change))
    shape = (16, 8)
    save_file({"model.embed_tokens.weight": np.ones(shape)}, tmp_path / "model.safetensors")
    shutil.copy(ROOT / "generators" / "models" / "tales" / "vocab.json", tmp_path)
    check_refusal(celosia("run", tmp_path, "--sim", "golden"), "config.json")
