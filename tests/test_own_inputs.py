"""Models on inputs in their own forms, on the golden machine and on a board: their outputs."""

import json
import shutil
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from celosia.arch.support.cache import ROOT
from celosia.tb.machine.toolchain import missing_tools
from tests.support.longer import longer

ZOO, SEED, COUNT = Path(__file__).parent / "data" / "zoo", 1, 2
WORDS = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "the",
    "a",
    "fox",
    "dog",
    "runs",
    "sees",
    "red",
    "lazy",
]


def way(options: list[str | Path]) -> str:
    """Return the command for inputs with labels or without."""
    return "evaluate" if "--answers" in options else "run"


def arrays(path: Path) -> tuple[Path, list[str | Path]]:
    """Return a model of windows of numbers, and options that name inputs, labels and samples."""
    folder = ROOT / "examples" / "vibration"
    options = ["--inputs", folder / "inputs.npy", "--answers", folder / "labels.npy"]
    return folder / "vibration.onnx", [*options, "--calibration", folder / "calibration.npy"]


def images(path: Path) -> tuple[Path, list[str | Path]]:
    """Return a vision transformer with names of classes, and a folder of images."""
    model = path / "vit"
    shutil.copytree(ZOO / "0_ViTForImageClassification", model)
    config = json.loads((model / "config.json").read_text())
    config["id2label"] = {"0": "cat", "1": "dog", "2": "fox"}
    (model / "config.json").write_text(json.dumps(config))
    how = {"image_mean": [0.5], "image_std": [0.25], "rescale_factor": 1 / 255}
    (model / "preprocessor_config.json").write_text(json.dumps(how))
    (path / "images").mkdir()
    pixels = np.random.default_rng(SEED).integers(0, 256, (COUNT, 8, 8), dtype=np.uint8)
    for index, image in enumerate(pixels):
        Image.fromarray(image).save(path / "images" / f"{index}.png")
    # As transformers does it, in 32 bits.
    scaled = (pixels[:, None] * (1 / 255)).astype(np.float32)
    np.save(path / "same.npy", (scaled - np.float32(0.5)) / np.float32(0.25))
    (path / "labels.txt").write_text("cat\n1\n")
    return model, ["--inputs", path / "images", "--answers", path / "labels.txt"]


def sounds(path: Path) -> tuple[Path, list[str | Path]]:
    """Return a transformer whose rows are cut out of a sound, and a folder of sounds."""
    model = onnx.load(ROOT / "examples" / "onnx" / "patches.onnx")
    graph, (folder, heard) = model.graph, (path / "hears", path / "sounds")
    for node in graph.node:
        node.input[:] = ["rows" if name == "x" else name for name in node.input]
    graph.initializer.append(numpy_helper.from_array(np.array([1, 7, 5]), "shape"))
    graph.node.insert(0, helper.make_node("Reshape", ["sound", "shape"], ["rows"]))
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info("sound", TensorProto.FLOAT, [1, 1, 35]))
    for subfolder in (folder, heard):
        subfolder.mkdir()
    onnx.save(model, folder / "model.onnx")
    (folder / "preprocessor_config.json").write_text(json.dumps({"sampling_rate": 8000}))
    rng, same = np.random.default_rng(SEED), np.zeros((COUNT, 1, 35))
    for index in range(COUNT):
        # Shorter ones are filled up with silence, longer ones cut.
        samples = rng.integers(-9999, 9999, 30 + 10 * index).astype("<i2")
        with wave.open(str(heard / f"{index}.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(samples.tobytes())
        same[index, 0, : len(samples)] = samples[:35] / (1 << 15)
    np.save(path / "same.npy", same)
    return folder / "model.onnx", ["--inputs", heard]


def sentences(path: Path) -> tuple[Path, list[str | Path]]:
    """Return a classifier of texts with its tokenizer, and sentences."""
    model = path / "bert"
    shutil.copytree(ZOO / "0_BertForSequenceClassification", model)
    known = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(WORDS)}}
    split = {"type": "Whitespace"}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": split}
    tokenizer["model"] = {**known, "unk_token": "[UNK]"}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "texts.txt").write_text("the red fox sees a lazy dog\na dog runs\n")
    return model, ["--inputs", path / "texts.txt", "--calibration", path / "texts.txt"]


FORMS: dict[str, Callable[[Path], tuple[Path, list[str | Path]]]] = {
    form.__name__: form for form in (arrays, images, sounds, sentences)
}


@pytest.fixture(scope="module", params=["arrays", "images", "sounds", "sentences"])
def case(request, tmp_path_factory) -> tuple[Path, Path, list[str | Path]]:
    """Return a folder, a model and the options that name its inputs."""
    path = tmp_path_factory.mktemp(request.param)
    return path, *FORMS[request.param](path)


def figures(celosia, *words: str | Path):
    code, shown, errors = celosia(*words, "--count", str(COUNT), "--json")
    assert (code, errors) == (0, "")
    return json.loads(shown)


GOLDEN = ("--config", "tiny", "--sim", "golden")


def options_of(options: list[str | Path], names: tuple[str, ...]) -> list[str | Path]:
    """Return the options of some names with their values."""
    pairs = zip(options[::2], options[1::2], strict=True)
    return [word for name, value in pairs if name in names for word in (name, value)]


def test_inputs_in_their_own_form(celosia, case) -> None:
    path, model, options = case
    named = options_of(options, ("--inputs", "--calibration"))
    figures(celosia, "run", model, *named, "--output", path / "out.npy", *GOLDEN)
    report = figures(celosia, way(options), model, *options, *GOLDEN)
    assert (report["mismatches"], report["count"]) == (0, COUNT)
    assert report["cosine_worst"] > 0.98
    outputs = np.load(path / "out.npy")
    assert len(outputs) == COUNT
    # Logits of a pair or more of classes: the largest is the prediction.
    assert outputs.reshape(COUNT, -1).argmax(axis=1).tolist() == report["predictions"]
    if "--answers" in options:
        right = np.equal(report["predictions"], report["labels"])
        assert report["accuracy"] == right.mean()
    if (path / "same.npy").is_file():
        other = path / "other.npy"
        figures(celosia, "run", model, "--inputs", path / "same.npy", "--output", other, *GOLDEN)
        # The order of roundings of a pixel is another one.
        np.testing.assert_allclose(np.load(other), outputs, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize(
    "case",
    # The tutorial own_model runs the model of arrays on this board.
    ["images", "sounds", "sentences", *longer("arrays")],
    indirect=True,
)
def test_a_board_gives_what_the_golden_machine_gives(celosia, case, port) -> None:
    path, model, options = case
    out = [path / name for name in ("golden.npy", "board.npy")]
    made = options_of(options, ("--inputs", "--calibration"))
    wanted = figures(celosia, "run", model, *made, "--output", out[0], *GOLDEN)
    code, _, errors = celosia("compile", model, *made, "--config", "tiny", "--out", path / "made")
    assert code == 0, errors
    host = ("host", "--port", port, "run", path / "made")
    report = figures(celosia, *host, *options_of(options, ("--inputs",)), "--output", out[1])
    np.testing.assert_array_equal(np.load(out[1]), np.load(out[0]))
    same = ("predictions", "names", "host", "calibration", "cosine_worst", "lengths")
    assert {name: report[name] for name in same} == {name: wanted[name] for name in same}
    assert (report["mismatches"], report["tensors"], report["simulator"]) == (0, COUNT, "board")


def refused(celosia, model: Path, inputs: Path) -> str:
    code, shown, errors = celosia("run", model, "--inputs", inputs, *GOLDEN)
    assert (code, shown) == (2, "")
    return errors.removeprefix("celosia: ")


def test_folders_that_are_refused(celosia, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    seeing, _ = images(tmp_path)
    hearing, _ = sounds(tmp_path)
    assert refused(celosia, seeing, tmp_path / "empty").startswith(
        f"Folder {tmp_path / 'empty'} holds neither images (.png, "
    )
    assert refused(celosia, seeing, tmp_path / "sounds").startswith(
        "Model vit takes inputs of the shape [1, 8, 8], which .wav files are not made into; "
    )
    (tmp_path / "sounds" / "1.wav").write_bytes(b"RIFF, but no sound")
    assert refused(celosia, hearing, tmp_path / "sounds").startswith(
        f"Cannot read sound {tmp_path / 'sounds' / '1.wav'}: "
    )
    (tmp_path / "images" / "1.png").write_bytes(b"no image")
    assert refused(celosia, seeing, tmp_path / "images").startswith(
        f"Cannot read image {tmp_path / 'images' / '1.png'}: "
    )
    how = hearing.with_name("preprocessor_config.json")
    how.write_text('{"sampling_rate": 16000}')
    assert refused(celosia, hearing, tmp_path / "sounds") == (
        f"Sound {tmp_path / 'sounds' / '0.wav'} must have 16000 samples a second, not 8000; "
        "resample it, for example with: ffmpeg -i 0.wav -ar 16000 resampled.wav\n"
    )
    how.unlink()
    assert refused(celosia, hearing, tmp_path / "sounds").startswith(
        "Model model does not say how images or sounds become its inputs: it has no preprocessor_"
    )
