"""A model of texts on machines: every tensor, every byte read once, cycles as predicted."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from celosia.arch.presets import PRESETS
from celosia.generators.lower.encoder_compiler import Options
from celosia.running import run_files
from celosia.tb.machine.memory_timing import FAR
from celosia.tb.models.run_inputs import Files, cosine
from celosia.tb.models.trace_model import trace_model

WORDS = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    *["the", "a", "fox", "dog", "runs", "sees", "red", "lazy"],
]
DIM, FFN, HEADS, LAYERS, TOKENS = 32, 128, 4, 2, 24
SENTENCES = ["the red fox sees a lazy dog", "a dog runs", "the fox sees the fox sees the dog"]
SMALL_BANKS = {"scratchpad_banks": 16, "scratchpad_bytes": 1 << 14, "program_depth": 4096}
"""Banks in which neither the residual stream nor the hidden layer has room."""
QUICK = Options(search=False)
SEED = 11

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="the package tokenizers is missing"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with a random encoder like BERT, its tokenizer, and sentences."""
    path = tmp_path_factory.mktemp("encoder")
    rng = np.random.default_rng(SEED)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), DIM),
        "embeddings.position_embeddings.weight": (TOKENS, DIM),
        "embeddings.token_type_embeddings.weight": (1, DIM),
    }
    layer = {f"attention.self.{name}": (DIM, DIM) for name in ("query", "key", "value")}
    layer |= {"attention.output.dense": (DIM, DIM)}
    layer |= {"intermediate.dense": (FFN, DIM), "output.dense": (DIM, FFN)}
    for number in range(LAYERS):
        for name, shape in layer.items():
            shapes[f"encoder.layer.{number}.{name}.weight"] = shape
            shapes[f"encoder.layer.{number}.{name}.bias"] = shape[:1]
    tensors = {name: rng.normal(0, shape[-1] ** -0.5, shape) for name, shape in shapes.items()}
    norms = [
        f"encoder.layer.{n}.{part}"
        for n in range(LAYERS)
        for part in ("attention.output", "output")
    ]
    for name in ("embeddings", *norms):
        tensors[f"{name}.LayerNorm.weight"] = rng.uniform(0.5, 1.5, DIM)
        tensors[f"{name}.LayerNorm.bias"] = rng.normal(0, 0.1, DIM)
    save_file(tensors, path / "model.safetensors")
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": DIM,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "vocab_size": len(WORDS),
    }
    (path / "config.json").write_text(json.dumps(config))
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(WORDS)},
            "unk_token": "[UNK]",
        },
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "sentences.txt").write_text("\n".join(SENTENCES))
    return path


def run_case(folder, preset, simulator, options=None, **changes):
    config = PRESETS[preset].replace(**changes)
    texts = folder / "sentences.txt"
    files = Files(inputs=texts, calibration=texts)
    result = run_files(str(folder), config, simulator, files, timing=FAR, options=options).figures
    assert result["mismatches"] == 0
    assert result["count"] == len(SENTENCES)
    assert result["cosine_worst"] > 0.98
    return result


@pytest.mark.parametrize("preset", ["small", "odd"])
def test_embeddings_are_those_of_the_float_model(folder, preset) -> None:
    # The next test has `tiny`.
    result = run_case(folder, preset, "golden", QUICK, **SMALL_BANKS)
    assert result["lengths"] == [7, 3, 8]
    assert len(result["similarities"]) == 2


@pytest.mark.slow
def test_on_the_circuit_weights_are_read_once_in_the_predicted_cycles(folder) -> None:
    result = run_case(folder, "tiny", "verilator", **SMALL_BANKS)
    assert result["lengths"] == [7, 3, 8]
    assert len(result["similarities"]) == 2
    # A block of rows behind a text's end is loaded as one row.
    assert 0 <= result["read_bytes"] - result["least_bytes"] <= 2 * DIM
    cycles = result["cycles_per_inference"]
    assert abs(result["predicted_cycles"] - cycles) <= 0.03 * cycles


@pytest.mark.slow
def test_padding_costs_no_cycles(folder, tmp_path) -> None:
    cycles = []
    for words in (3, TOKENS):
        text = tmp_path / f"{words}.txt"
        text.write_text(" ".join(["fox"] * words) + "\n")
        config, texts = PRESETS["tiny"].replace(**SMALL_BANKS), folder / "sentences.txt"
        files = Files(inputs=text, calibration=texts)
        result = run_files(
            str(folder), config, "verilator", files, timing=FAR, options=QUICK
        ).figures
        assert result["mismatches"] == 0
        assert result["lengths"] == [words]
        assert abs(result["predicted_cycles"] - result["cycles"]) <= 0.03 * result["cycles"]
        cycles.append(result["cycles"])
    # Three rows of a tile's four against 24; weights are loaded and placed all the same.
    assert cycles[0] < 0.55 * cycles[1]


@pytest.mark.slow
def test_a_sentence_is_traced(folder) -> None:
    config, texts = PRESETS["tiny"].replace(**SMALL_BANKS), folder / "sentences.txt"
    files = Files(inputs=texts, calibration=texts)
    traced = trace_model(str(folder), config, "verilator", FAR, files)
    assert traced.figures["mismatches"] == 0
    assert sum(traced.figures["where"].values()) == traced.recording.cycles
    names = [operation.name for operation in traced.operations]
    assert {f"layers.{layer}.hidden" for layer in range(LAYERS)} <= set(names)
    loaded = sum(operation.loaded for operation in traced.operations)
    assert loaded == traced.figures["read_bytes"]


def test_what_cannot_run_is_refused_before_any_work(folder, tmp_path) -> None:
    missing = str(tmp_path / "no model")
    with pytest.raises(ValueError, match=r"^Unknown simulator 'modelsim'; known are "):
        run_files(missing, PRESETS["small"], "modelsim", Files(inputs=folder / "sentences.txt"))
    with pytest.raises(ValueError, match=r"^Count of sentences must be from 1 to 3, not 4$"):
        run_files(
            str(folder),
            PRESETS["small"],
            "golden",
            Files(inputs=folder / "sentences.txt"),
            count=4,
        )


def test_cosine() -> None:
    assert cosine(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]])) == pytest.approx(0.5**0.5)
