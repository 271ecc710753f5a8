"""Functions that write small valid files of each input format, and commands that read them."""

import json
import shutil
import struct
import tomllib
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from celosia.arch.packages import library
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.llama2c import HEADER
from celosia.generators.frontend.weights import load_model
from celosia.tb.verify.fuzz.graphs import RandomGraph

Rng = np.random.Generator
_MODELS = Path(__file__).parents[3] / "generators" / "models"
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_WORDS = ("[UNK]", "[CLS]", "[SEP]", "\n", "the", "a", "fox", "dog", "runs", "sees", "red", "lazy")
_GOLDEN = ("--config", "tiny", "--sim", "golden", "--count", "1")


MODEL = "m/"
"""Folder of a seed's model, if it is one."""


@dataclass(frozen=True)
class Seed:
    """A command line to fuzz (``words``), and the names of input files to damage (``targets``)."""

    words: tuple[str, ...]
    """Words of the command, which runs in the folder."""
    targets: tuple[str, ...]
    """Names of the files to damage."""


def _model(kind: str, folder: Path, rng: Rng, *, sharded: bool = False) -> None:
    """Write a model of the table into a folder, which it makes."""
    folder.mkdir()
    table = _TABLE[kind]
    (folder / "config.json").write_text(json.dumps(table["config"], indent=1))
    tensors = {
        name: rng.normal(0, 0.5, shape).astype(np.float32)
        for name, shape in table["tensors"].items()
    }
    if not sharded:
        save_file(tensors, folder / "model.safetensors")
        return
    names = [*tensors]
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for part, own in parts.items():
        save_file({name: tensors[name] for name in own}, folder / part)
    listed = {name: part for part, own in parts.items() for name in own}
    index = {"metadata": {"total_size": 1}, "weight_map": listed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _tokenizer(folder: Path) -> None:
    known = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(_WORDS)}}
    content: dict[str, Any] = {"version": "1.0", "added_tokens": []}
    content["pre_tokenizer"] = {"type": "Whitespace"}
    content["model"] = {**known, "unk_token": "[UNK]"}
    (folder / "tokenizer.json").write_text(json.dumps(content))


def _safetensors(folder: Path, rng: Rng) -> Seed:
    _model("llama", folder / "m", rng)
    return Seed(("inspect", "m"), ("m/model.safetensors",))


def _settings(folder: Path, rng: Rng) -> Seed:
    kind = str(rng.choice([*_TABLE]))
    _model(kind, folder / "m", rng)
    return Seed(("inspect", "m"), ("m/config.json",))


def _index(folder: Path, rng: Rng) -> Seed:
    _model("llama", folder / "m", rng, sharded=True)
    return Seed(("inspect", "m"), ("m/model.safetensors.index.json",))


def _onnx(folder: Path, rng: Rng) -> Seed:
    RandomGraph(rng).save(folder / "m.onnx")
    return Seed(("inspect", "m.onnx"), ("m.onnx",))


def _llama2c(folder: Path, rng: Rng) -> Seed:
    dim, ffn, vocabulary, positions = 8, 12, len(_WORDS), 16
    size = vocabulary * dim + 2 * dim + 4 * dim * dim + 3 * dim * ffn + dim + positions * dim // 2
    numbers = rng.normal(0, 0.5, size).astype("<f4")
    header = HEADER.pack(dim, ffn, 1, 2, 2, vocabulary, positions)
    (folder / "m.bin").write_bytes(header + numbers.tobytes())
    pieces = b"".join(
        struct.pack("<fi", -float(n), len(word)) + word.encode() for n, word in enumerate(_WORDS)
    )
    (folder / "tok8.bin").write_bytes(struct.pack("<i", 8) + pieces)
    return Seed(("inspect", "m.bin"), ("m.bin", "tok8.bin"))


def _npy(folder: Path, rng: Rng) -> Seed:
    model, _ = load_model("digits-simplified")
    np.save(folder / "x.npy", rng.normal(0, 1, (4, model.tokens, model.features)))
    np.save(folder / "y.npy", rng.integers(0, model.classes, 4))
    words = ("evaluate", "digits-simplified", *_GOLDEN, "--inputs", "x.npy", "--answers", "y.npy")
    return Seed(words, ("x.npy", "y.npy"))


def _toml(folder: Path, rng: Rng) -> Seed:
    if rng.random() < 0.5:
        shutil.copytree(_MODELS / "digits-simplified", folder / "m")
        return Seed(("inspect", "m"), ("m/model.toml",))
    (folder / "c.toml").write_text(PRESETS["tiny"].to_toml())
    words = ("bench", "gemm", "--config", "c.toml", "--sim", "golden")
    return Seed((*words, "3x4x5"), ("c.toml",))


def _vision(folder: Path, rng: Rng) -> None:
    _model("vit", folder / "m", rng)
    how = {"image_mean": [0.5], "image_std": [0.25], "rescale_factor": 1 / 255, "resample": 2}
    how |= {"do_resize": True, "size": {"height": 8, "width": 8}, "do_normalize": True}
    how |= {"image_processor_type": "ViTImageProcessor"} if rng.random() < 0.5 else {}
    (folder / "m" / "preprocessor_config.json").write_text(json.dumps(how))
    (folder / "x").mkdir()
    pillow = library("PIL.Image", "Images need", "pillow")
    for number, suffix in enumerate(("png", "jpg", "bmp", "gif", "webp", "pgm")):
        pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
        pillow.fromarray(pixels).save(folder / "x" / f"{number}.{suffix}")


def _image(folder: Path, rng: Rng) -> Seed:
    _vision(folder, rng)
    images = sorted(path.name for path in (folder / "x").iterdir())
    words = ("run", "m", *_GOLDEN, "--inputs", "x")
    return Seed(words, tuple(f"x/{name}" for name in images))


def _processor(folder: Path, rng: Rng) -> Seed:
    _vision(folder, rng)
    return Seed(("run", "m", *_GOLDEN, "--inputs", "x"), ("m/preprocessor_config.json",))


def _reshaped(path: Path, tokens: int, features: int) -> None:
    """Let a graph's input be the samples of a sound, [1, 1, n], instead of its rows."""
    onnx = library("onnx", "ONNX files need", "onnx")
    model = onnx.load(str(path))
    graph, kind = model.graph, onnx.TensorProto.FLOAT
    for node in graph.node:
        node.input[:] = ["rows" if name == "x" else name for name in node.input]
    shape = np.array([1, tokens, features])
    graph.initializer.append(onnx.numpy_helper.from_array(shape, "shape"))
    graph.node.insert(0, onnx.helper.make_node("Reshape", ["sound", "shape"], ["rows"]))
    del graph.input[:]
    sound = onnx.helper.make_tensor_value_info("sound", kind, [1, 1, tokens * features])
    graph.input.append(sound)
    onnx.save(model, str(path))


def _wav(folder: Path, rng: Rng) -> Seed:
    (folder / "m").mkdir()
    graph = RandomGraph(rng, plain=True)
    path = folder / "m" / "m.onnx"
    graph.save(path)
    _reshaped(path, graph.tokens, graph.features)
    named = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True}
    how = json.dumps({"sampling_rate": 8000} | (named if rng.random() < 0.5 else {}))
    (folder / "m" / "preprocessor_config.json").write_text(how)
    (folder / "x").mkdir()
    for number in range(3):
        with wave.open(str(folder / "x" / f"{number}.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(rng.integers(-9999, 9999, 20).astype("<i2").tobytes())
    words = ("run", "m/m.onnx", *_GOLDEN, "--inputs", "x")
    return Seed(words, ("x/0.wav", "m/preprocessor_config.json"))


def _texts(folder: Path, rng: Rng) -> Seed:
    _model("bert", folder / "m", rng)
    _tokenizer(folder / "m")
    (folder / "x.txt").write_text("the red fox sees a lazy dog\na dog runs\nthe fox sees\n")
    (folder / "y.txt").write_text("cat\n1\nfox\n")
    words = ("evaluate", "m", *_GOLDEN, "--inputs", "x.txt", "--answers", "y.txt")
    return Seed((*words, "--calibration", "x.txt"), ("m/tokenizer.json", "x.txt", "y.txt"))


FORMATS: dict[str, Callable[[Path, Rng], Seed]] = {
    "safetensors": _safetensors,
    "settings": _settings,
    "index": _index,
    "onnx": _onnx,
    "llama2c": _llama2c,
    "npy": _npy,
    "toml": _toml,
    "image": _image,
    "processor": _processor,
    "wav": _wav,
    "texts": _texts,
}
"""For each format a function that writes valid files into a folder."""
