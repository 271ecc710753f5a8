"""Remedies that a refusal of inputs or of a compiled program names are followed here."""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import celosia as api
from celosia.arch.packages import library
from celosia.arch.presets import PRESETS
from celosia.generators.export.flash_images import power_on_image
from celosia.generators.frontend.sample_files import input_files, read_labels, read_samples
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.tokenizer import read_sentences
from celosia.generators.lower.early import check_memory
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.quantize.options import Quantization
from celosia.opening import open_compiled
from tests.support.remedies import DATA, ROOT, change, refused
from tests.test_early import Large, sized
from tests.test_media import MEAN, PROCESSORS, STD, listener, vision_folder

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")


def test_arrays_that_are_saved_again(tmp_path: Path) -> None:
    source = load_source("digits")
    values = np.ones((1, source.description.tokens, source.description.features))
    (tmp_path / "x.npy").write_text("no array")
    with refused("; save it with numpy.save"):
        read_samples(tmp_path / "x.npy", source)
    np.save(tmp_path / "x.npy", values)
    read_samples(tmp_path / "x.npy", source)
    (tmp_path / "x.npz").write_text("no archive")
    with refused("; save them with numpy.savez"):
        read_samples(tmp_path / "x.npz", source)
    np.savez(tmp_path / "x.npz", input=values)
    read_samples(tmp_path / "x.npz", source)


def test_files_and_lines_that_are_taken_out(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    Image.new("L", (9, 13)).save(drawn / "a.png")
    (drawn / "notes.txt").write_text("x")
    with refused("; take it out, so that each file is an input"):
        input_files(drawn)
    (drawn / "notes.txt").unlink()
    assert len(input_files(drawn)) == 1
    path = tmp_path / "lines.txt"
    path.write_text("a\n\nb\n")
    with refused("; remove it, and its entries in other files"):
        read_sentences(path)
    path.write_text("a\nb\n")
    assert read_sentences(path) == ["a", "b"]
    source = replace(load_source("digits"), labels=("one", "one", *"abcdefgh"))
    path.write_text("one\n")
    with refused("; give the number of the right one"):
        read_labels(path, source)
    path.write_text("1\n")
    assert read_labels(path, source).tolist() == [1]


def test_images_and_their_settings(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    Image.new("RGB", (20, 30), (200, 10, 10)).save(drawn / "a.png")
    how = {"image_processor_type": "ViTImageProcessor", "size": {"height": 9, "width": 9}}
    source = vision_folder(tmp_path / "model", how)
    with refused("; set 'size' and 'crop_size' there"):
        read_samples(drawn, source)
    for mended in ({"size": {"height": 8, "width": 8}}, {"do_center_crop": True, "crop_size": 8}):
        kind = "CLIPImageProcessor" if "crop_size" in mended else "ViTImageProcessor"
        (tmp_path / "model" / "preprocessor_config.json").unlink()
        mended = how | mended | {"image_processor_type": kind}
        change(tmp_path / "model" / "preprocessor_config.json", **mended)
        assert len(read_samples(drawn, source)) == 1
    alone = tmp_path / "alone"
    alone.mkdir()
    settings = alone / "preprocessor_config.json"
    change(settings, image_mean=MEAN, image_std=STD, crop_pct=0.9)
    with refused("; add 'image_processor_type' or 'feature_extractor_type'"):
        read_samples(drawn, replace(source, path=alone))
    change(settings, **PROCESSORS["convnext"])
    assert len(read_samples(drawn, replace(source, path=alone))) == 1


def test_sounds_and_their_settings(tmp_path: Path) -> None:
    sounds = tmp_path / "sounds"
    sounds.mkdir()
    samples = np.sin(np.arange(4000) / 9)
    soundfile.write(sounds / "a.wav", samples, 16000)
    source = listener(tmp_path / "model", {"sampling_rate": 8000}, (2000,))
    with refused("; resample it, for example with: ffmpeg -i a.wav -ar 8000 resampled.wav"):
        read_samples(sounds, source)
    resample = library("scipy.signal", "Tests need", "scipy").resample_poly
    soundfile.write(sounds / "a.wav", resample(samples, 1, 2), 8000)
    assert len(read_samples(sounds, source)) == 1
    model = DATA / "sounds" / "model"
    shutil.copytree(model, tmp_path / "spectrograms")
    settings = tmp_path / "spectrograms" / "preprocessor_config.json"
    rate = json.loads(settings.read_text())["sampling_rate"]
    soundfile.write(sounds / "a.wav", samples, rate)
    change(settings, hop=80)
    read = load_source(str(tmp_path / "spectrograms"))
    with refused("; remove it"):
        read_samples(sounds, read)
    change(settings, hop=None)
    assert len(read_samples(sounds, read)) == 1


def test_programs_and_their_folders(celosia, tmp_path: Path) -> None:
    with refused("; leave out tokenizer x"):
        api.load("digits", tokenizer="x")
    with refused("; leave out tokens, which is 9"):
        api.load("tales", tokens=9)
    api.load("tales")
    model = tmp_path / "model.onnx"
    shutil.copy(ROOT / "examples" / "onnx" / "patches.onnx", model)
    made = tmp_path / "made"
    with refused(f"; make one with: celosia compile {model} --out build/model"):
        open_compiled(model)
    with pytest.warns(UserWarning, match="; give inputs like those to come as calibration"):
        program = api.compile(api.load(model))
    inputs = program.model.examples(2)
    with warnings.catch_warnings(action="error"):
        api.compile(api.load(model), calibration=inputs)
    with refused("; use run"):
        next(program.generate("one"))
    program.run(inputs)
    program.save(made)
    opened = api.open(made)
    with refused("; load and compile the model"):
        _ = opened.required_model
    assert program.required_model
    with refused("; compile it again with: celosia compile MODEL --out "):
        change(made / "model.json", origin=None)
        open_compiled(made)
    words = ("compile", model, "--out", made)
    code, _, errors = celosia(*words)
    assert code == 2
    assert "; give them with --inputs or --calibration, or ask for random ones with " in errors
    code, _, errors = celosia(*words, "--inputs", "random:2")
    assert code == 0, errors
    open_compiled(made)
    model.rename(tmp_path / "away.onnx")
    with refused("; put the model back, or give rows of the machine's input to celosia.open(fol"):
        open_compiled(made)
    rows = program.model.source.rows(program.model.source.prepare(inputs[0]))
    assert len(api.open(made).run([rows]).outputs) == 1
    (tmp_path / "away.onnx").rename(model)
    open_compiled(made)


def test_weights_that_are_trained_again() -> None:
    source = load_source("digits")
    model = source.description
    inputs = np.random.default_rng(1).uniform(0, 1, (4, model.tokens, model.features))
    for part, value, words in (
        ("layers.1.key.weight", np.nan, "; train or export the model again"),
        ("layers.0.attention_norm.weight", 1e6, "; rescale the model's weights, or calibrate on "),
    ):
        wrong = {name: np.array(values, np.float64) for name, values in source.weights.items()}
        wrong[part].flat[0] = value
        with refused(words):
            compile_model(model, wrong, inputs, PRESETS["small"], Options(search=False))
    compile_model(model, source.weights, inputs, PRESETS["small"], Options(search=False))


def test_memory_of_many_weights() -> None:
    model, config = sized(16), PRESETS["medium"].replace(mem_addr_width=27)
    with refused("; set mem_addr_width=28 or more"):
        check_memory(model, Large(model), config, Quantization())
    check_memory(model, Large(model), config.replace(mem_addr_width=28), Quantization())


def test_an_image_without_inputs() -> None:
    program = api.compile(api.load("digits")).code
    without = replace(program, output=replace(program.output, columns=1))
    values = [np.zeros(1)]
    with refused("; leave out the inputs, and a host can run it"):
        power_on_image(without, program.config, values, (), 256)
    assert power_on_image(without, program.config, [], (), 256)
