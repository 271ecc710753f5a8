"""Remedies of model folders with adapters, with other files or with arguments beside the model."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from tests.support.door import DECODERS, ENCODERS, decoder_folder, encoder_folder
from tests.support.remedies import ROOT, change, refused
from tests.support.sentence_folders import FOLDERS


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """Return the folder of an encoder of texts."""
    encoder_folder(ENCODERS[0], tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    """Return the folder of a language model."""
    decoder_folder(DECODERS[0], tmp_path / "decoder")
    return tmp_path / "decoder"


def test_adapters_are_merged_or_left_out(celosia, decoder: Path, tmp_path: Path) -> None:
    tensors = load_file(decoder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    inputs, outputs = (rng.normal(0, 1, (2, tensors[name].shape[0])).astype(np.float32)
                       for rng in map(np.random.default_rng, (1, 2)))  # fmt: skip
    part = f"base_model.model.{name.removesuffix('weight')}"
    adapter = {f"{part}lora_A.weight": inputs, f"{part}lora_B.weight": outputs.T.copy()}
    alone = tmp_path / "adapter"
    alone.mkdir()
    for folder in (alone, decoder):
        change(folder / "adapter_config.json", peft_type="LORA", r=2, lora_alpha=4)
        save_file(adapter, folder / "adapter_model.safetensors")
    words = "; merge it with PEFT, which writes a whole folder: "
    with refused(words):
        load_source(str(alone))
    for options in ((), ("--prompt", "hello")):
        code, _, errors = celosia("run", alone, *options)
        assert code == 2
        assert words in errors
    with refused(words, "; or take that file out of the folder, to run the model without it"):
        load_text(str(decoder))
    (decoder / "adapter_config.json").unlink()
    before = load_text(str(decoder)).weights
    # What PEFT's merge_and_unload writes.
    merged = tensors[name] + 4 / 2 * outputs.T @ inputs
    save_file(tensors | {name: merged}, decoder / "model.safetensors")
    after = load_text(str(decoder)).weights
    assert any(not np.array_equal(before[each], after[each]) for each in before)


def test_folders_whose_model_is_in_another_file(encoder: Path, decoder: Path, tmp_path) -> None:
    for folder, load in ((encoder, load_source), (decoder, load_text)):
        path = folder / "model.safetensors"
        path.rename(folder / "model.fp16.safetensors")
        with refused("; if its file model.fp16.safetensors has all weights of the model, give it "):
            load(str(folder))
        (folder / "model.fp16.safetensors").rename(path)
        load(str(folder))
        kept = path.rename(tmp_path / "kept")
        (folder / "model.Q8_0.gguf").write_bytes(b"GGUF")
        with refused("its file model.Q8_0.gguf is not read: it is llama.cpp's; use the folder "):
            load(str(folder))
        kept.rename(path)
        load(str(folder))
    graph = ROOT / "examples" / "onnx" / "patches.onnx"
    for place in (tmp_path / "alone", encoder / "onnx"):
        place.mkdir()
        shutil.copy(graph, place / "model.onnx")
    (encoder / "model.safetensors").unlink()
    for folder, file in (
        (tmp_path / "alone", tmp_path / "alone" / "model.onnx"),
        (encoder, encoder / "onnx" / "model.onnx"),
    ):
        with refused(f"; give its file {file}"):
            load_source(str(folder))
        load_source(str(file))
    (tmp_path / "nothing").mkdir()
    with refused("; give one with config.json and model.safetensors, as save_pretrained writes it"):
        load_source(str(tmp_path / "nothing"))


def test_arguments_that_stand_beside_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    FOLDERS["mean"](folder)
    path = folder / "sentence_bert_config.json"
    change(path, config_args={"hidden_act": "relu"})
    with refused("; move its settings to config.json or tokenizer_config.json"):
        load_source(str(folder))
    change(path, config_args=None)
    change(folder / "config.json", hidden_act="relu")
    assert load_source(str(folder)).description.activation == "relu"
    change(path, tilt=1)
    with refused("; if no output of the model depends on them, take them out of the file"):
        load_source(str(folder))
    change(path, tilt=None)
    load_source(str(folder))
