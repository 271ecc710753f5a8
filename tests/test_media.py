"""Images and sounds as they enter the machine, against transformers' own processors."""

import importlib.util
import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from celosia.arch.errors import InputError
from celosia.arch.packages import library
from celosia.generators.frontend.media import image_reader, sound_length, sound_reader
from celosia.generators.frontend.sample_files import count_cut, read_samples
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.weights import load_model
from tools.sounds import SETTINGS, write_sounds

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in ("transformers", "soundfile")),
    reason="transformers or soundfile is not installed",
)
ZOO = Path(__file__).parent / "data" / "zoo" / "0_ViTForImageClassification"
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PROCESSORS: dict[str, dict[str, Any]] = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}},
    "vit bicubic": {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 8, "width": 8},
        "resample": 3,
        "image_mean": MEAN,
        "image_std": STD,
    },
    "deit": {
        "image_processor_type": "DeiTImageProcessor",
        "size": {"height": 10, "width": 10},
        "crop_size": {"height": 8, "width": 8},
    },
    "dinov2": {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 10},
        "crop_size": {"height": 8, "width": 8},
        "resample": 3,
    },
    "clip": {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 8},
        "crop_size": 8,
    },
    "not resized": {
        "feature_extractor_type": "CLIPFeatureExtractor",
        "do_resize": False,
        "crop_size": {"height": 8, "width": 8},
    },
    "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 8, "width": 8}},
    "convnext": {
        "image_processor_type": "ConvNextImageProcessor",
        "size": {"shortest_edge": 8},
        "crop_pct": 0.875,
    },
    "not scaled": {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 8, "width": 8},
        "do_rescale": False,
        "do_normalize": False,
        "resample": 0,
    },
}
SIZES = [(8, 8), (8, 20), (31, 8), (9, 13), (40, 30), (64, 17), (100, 101)]


def vision_folder(folder: Path, how: dict[str, Any]) -> Source:
    """Write a vision transformer of three colours with a processor, and return it."""
    shutil.copytree(ZOO, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_channels": 3}))
    tensors = load_file(folder / "model.safetensors")
    name = next(tensor_name for tensor_name in tensors if tensor_name.endswith("projection.weight"))
    tensors[name] = np.repeat(tensors[name], 3, axis=1)
    save_file(tensors, folder / "model.safetensors")
    (folder / "preprocessor_config.json").write_text(json.dumps(how))
    return load_source(str(folder))


def draw_images(folder: Path) -> None:
    """Write twenty images of many sizes, kinds and formats, some of them turned by EXIF."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    modes = ("RGB", "L", "RGBA", "P", "LA", "1", "CMYK")
    for number in range(20):
        width, height = SIZES[number % len(SIZES)]
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).convert(modes[number % 7 if number > 6 else 0])
        ending = {"RGB": ["png", "jpg", "bmp", "webp"][number % 4], "L": "png"}.get(
            image.mode, "png"
        )
        ending = "jpg" if image.mode == "CMYK" else ending
        exif = Image.Exif()
        exif[0x0112] = 1 + number % 8
        image.save(folder / f"{number:02}.{ending}", **({"exif": exif} if ending != "bmp" else {}))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of images."""
    folder = tmp_path_factory.mktemp("drawn") / "images"
    draw_images(folder)
    return folder


@pytest.mark.parametrize("name", PROCESSORS)
def test_images_are_what_a_model_was_trained_with(tmp_path: Path, images: Path, name: str) -> None:
    source = vision_folder(tmp_path / "model", PROCESSORS[name])
    package = library("transformers", "Tests need", "transformers")
    processor = package.AutoImageProcessor.from_pretrained(str(tmp_path / "model"), backend="pil")
    loaded = [package.image_utils.load_image(str(path)) for path in sorted(images.iterdir())]
    right = [processor(image, return_tensors="np")["pixel_values"][0] for image in loaded]
    read = image_reader(source)
    for path, pixels in zip(sorted(images.iterdir()), right, strict=True):
        if pixels.shape == (3, 8, 8):
            np.testing.assert_allclose(read(path), pixels, atol=1e-6)
        else:
            with pytest.raises(ValueError, match=r"by the processor of folder .* set 'size'"):
                read(path)
    if all(pixels.shape == (3, 8, 8) for pixels in right):
        for sample, pixels in zip(read_samples(images, source), right, strict=True):
            np.testing.assert_allclose(sample, source.prepare(pixels), atol=1e-6)


def test_all_but_a_tenth_of_images_are_taken(tmp_path: Path, images: Path) -> None:
    for name, how in PROCESSORS.items():
        read = image_reader(vision_folder(tmp_path / name, how))
        assert len([read(path) for path in sorted(images.iterdir())]) == 20


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"resample": 99}, "99"),
        ({"rescale_factor": "1/255"}, "'rescale_factor' in .* must be a number, not '1/255'"),
        ({"do_normalize": True, "image_mean": [0.5, 0.5]}, "preprocessor_config.json says"),
        ({"size": {"height": 9, "width": 9}}, r"becomes \[3, 9, 9\] by the processor of folder"),
    ],
)
def test_processors_that_are_refused(
    tmp_path: Path, images: Path, how: dict[str, Any], why: str
) -> None:
    source = vision_folder(tmp_path / "model", PROCESSORS["vit"] | how)
    with pytest.raises(ValueError, match=why):
        read_samples(images, source)
    # The same of a model whose processor is not named.
    if "size" not in how:
        alone = tmp_path / "alone"
        alone.mkdir()
        plain = {"image_mean": MEAN, "image_std": STD, **how}
        (alone / "preprocessor_config.json").write_text(json.dumps(plain))
        with pytest.raises(ValueError, match=why if "must" in why else "must be a"):
            read_samples(images, replace(source, path=alone))


def listener(folder: Path, how: dict[str, Any], shape: tuple[int, ...]) -> Source:
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text(json.dumps(how))
    source = Source(*load_model("digits"))
    return replace(source, path=folder, shape=shape)


def test_an_image_of_the_models_size_is_processed_as_any_other(tmp_path: Path) -> None:
    how = {"image_processor_type": "DeiTImageProcessor"}
    source = listener(tmp_path / "model", how, (3, 224, 224))
    pixels = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    package = library("transformers", "Tests need", "transformers")
    processor = package.AutoImageProcessor.from_pretrained(str(tmp_path / "model"), backend="pil")
    right = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
    processed = image_reader(source)(tmp_path / "x.png")
    np.testing.assert_allclose(processed, right, atol=1e-6)


def test_images_without_the_name_of_a_processor(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    norm = {"image_mean": MEAN, "image_std": STD}
    for number, (how, right) in enumerate(
        [
            (norm, (pixels / 255 - MEAN) / STD),
            (norm | {"do_normalize": False}, pixels / 255),
            ({"do_rescale": False}, pixels.astype(float)),
        ]
    ):
        read = image_reader(listener(tmp_path / str(number), how, (3, 8, 8)))
        values = read(tmp_path / "x.png")
        assert values.dtype == np.float64
        np.testing.assert_allclose(values, np.moveaxis(right, -1, 0), rtol=1e-12)


def test_the_length_of_a_sound_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"^Sounds need the package soundfile of the extra sounds;"
    ):
        sound_length(Path("x.wav"))


RECORDED = Path(__file__).parent / "data" / "sounds"
WAVE = "Wav2Vec2FeatureExtractor"
EXTRACTORS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "wave": ({"sampling_rate": 8000}, (1, 4000)),
    "normalized": (
        {"feature_extractor_type": WAVE, "sampling_rate": 8000, "do_normalize": True},
        (4000,),
    ),
    "as it is": (
        {"feature_extractor_type": WAVE, "sampling_rate": 8000, "do_normalize": False},
        (4000,),
    ),
    "normalized frames": (
        {
            "feature_extractor_type": "Speech2TextFeatureExtractor",
            **{"sampling_rate": 8000, "num_mel_bins": 16, "feature_size": 16},
            "normalize_vars": False,
        },
        (24, 16),
    ),
    "joined frames": (
        {
            "feature_extractor_type": "SeamlessM4TFeatureExtractor",
            **{"sampling_rate": 8000, "num_mel_bins": 16, "stride": 2},
        },
        (12, 32),
    ),
}


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of twelve sounds."""
    folder = tmp_path_factory.mktemp("heard") / "sounds"
    write_sounds(folder)
    return folder


@pytest.mark.parametrize("name", EXTRACTORS)
def test_sounds_are_what_a_model_was_trained_with(tmp_path: Path, sounds: Path, name: str) -> None:
    how, shape = EXTRACTORS[name]
    source = listener(tmp_path / "model", how, shape)
    soundfile = library("soundfile", "Tests need", "soundfile")
    package = library("transformers", "Tests need", "transformers")
    processed = [sound_reader(source)(path) for path in sorted(sounds.iterdir())]
    for path, values in zip(sorted(sounds.iterdir()), processed, strict=True):
        samples = soundfile.read(path, always_2d=True)[0].mean(axis=1)
        if name == "wave":
            right = np.pad(samples[:4000], (0, max(0, 4000 - len(samples))))
        else:
            extractor = package.AutoFeatureExtractor.from_pretrained(str(tmp_path / "model"))
            length = 24 if len(shape) == 2 else 4000
            fill = {"padding": "max_length", "max_length": length, "truncation": True}
            right = extractor(samples, sampling_rate=8000, return_tensors="np", **fill)
            right = right[extractor.model_input_names[0]][0]
        np.testing.assert_allclose(values, np.reshape(right, shape), atol=1e-6)
    assert count_cut(sounds, source, None) == (0 if len(shape) == 2 and shape[0] > 1 else 6)


def test_spectrograms_are_those_of_transformers(celosia, tmp_path: Path, sounds: Path) -> None:
    model, right = RECORDED / "model", np.load(RECORDED / "features.npz")
    read = sound_reader(load_source(str(model)))
    for path in sorted(sounds.iterdir()):
        np.testing.assert_allclose(read(path), right[path.name], rtol=1e-5, atol=1e-6)
    output = tmp_path / "y.npy"
    words = ("--config", "small", "--sim", "golden", "--json", "--output", output)
    code, shown, errors = celosia("run", model, "--inputs", sounds, *words)
    assert code == 0, errors
    assert json.loads(shown)["mismatches"] == 0
    logits = np.load(RECORDED / "logits.npy")
    source = load_source(str(model))
    floats = [np.ravel(source.floats(sample)) for sample in read_samples(sounds, source)]
    np.testing.assert_allclose(floats, logits, rtol=1e-4, atol=1e-4 * np.abs(logits).max())
    np.testing.assert_allclose(np.load(output)[:, 0], logits, atol=0.1 * np.abs(logits).max())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hop": 80}, "Setting 'hop' in .* is none of sampling_rate, num_mel_bins, max_length, "),
        ({"max_length": 0}, "Setting 'max_length' in .* must be a positive integer, not 0"),
        ({"std": 0.0}, r"Setting 'std' in .* must be a positive number, not 0\.0"),
        ({"mean": "a"}, "Setting 'mean' in .* must be a number, not 'a'"),
        ({"do_normalize": 1}, "Setting 'do_normalize' in .* must be true or false, not 1"),
        ({"max_length": 40}, "is not made an input as .* says: cannot reshape array of size 640"),
    ],
)
def test_settings_of_spectrograms_that_are_refused(
    tmp_path: Path, sounds: Path, change: dict[str, Any], why: str
) -> None:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("transformers reads the settings where PyTorch is installed")
    source = listener(tmp_path / "model", SETTINGS | change, (30, 16))
    with pytest.raises(ValueError, match=why):
        read_samples(sounds, source)


def test_settings_of_sounds_that_are_refused(tmp_path: Path, sounds: Path) -> None:
    def refused(how: dict[str, Any], why: str) -> None:
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        with pytest.raises(ValueError, match=why):
            read_samples(sounds, listener(folder, how, (4000,)))

    refused({}, "must give 'sampling_rate' in preprocessor_config.json, a positive integer, not N")
    refused({"sampling_rate": 8000, "do_normalize": True}, r"^Settings do_normalize in .* it does")
    refused({"sampling_rate": 16000}, "must have 16000 samples a second, not 8000; resample it")
    soundfile = library("soundfile", "Tests need", "soundfile")
    (tmp_path / "silent").mkdir()
    soundfile.write(tmp_path / "silent" / "0.wav", np.zeros(0), 8000)
    source = listener(tmp_path / "model", {"sampling_rate": 8000}, (40,))
    with pytest.raises(ValueError, match="has no samples"):
        read_samples(tmp_path / "silent", source)


@pytest.mark.parametrize(
    ("name", "kind"), [("x.png", np.uint16), ("x.pgm", np.uint16), ("x.pfm", np.float32)]
)
def test_images_of_more_than_8_bits_are_refused(tmp_path: Path, name: str, kind: type) -> None:
    """Pillow's conversion makes every value above 255 white."""
    Image.fromarray(np.full((8, 8), 512, kind)).save(tmp_path / name)
    path = (tmp_path / name).rename(tmp_path / name.replace("pfm", "ppm"))
    read = image_reader(listener(tmp_path / "model", {}, (1, 8, 8)))
    with pytest.raises(InputError, match="more than 8 bits; save it with 8, for example as ") as no:
        read(path)
    names = {"PIL": PIL, "numpy": np, "image": Image.open(path)}
    eval(str(no.value).rpartition(" example as ")[2], names).save(tmp_path / "y.png")
    np.testing.assert_allclose(read(tmp_path / "y.png"), 2 / 255)


def test_a_palette_with_transparency_is_read_without_warnings(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert("P")
    image.save(tmp_path / "x.png", transparency=bytes(range(200)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = image_reader(listener(tmp_path / "model", {}, (3, 8, 8)))(tmp_path / "x.png")
    np.testing.assert_allclose(values, np.moveaxis(np.asarray(image.convert("RGB")), -1, 0) / 255)


def test_only_kinds_of_images_that_are_named_are_read(tmp_path: Path) -> None:
    """Others may start programs, such as Ghostscript for PostScript."""
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "x.tiff")
    path = (tmp_path / "x.tiff").rename(tmp_path / "x.png")
    with pytest.raises(InputError, match=r"^Cannot read image .*/x\.png: cannot identify image"):
        image_reader(listener(tmp_path / "model", {}, (1, 8, 8)))(path)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"size": {"height": 10, "width": 10}}, "that of the model, 8 by 8, not {'height': 10, "),
        ({"size": {"shortest_edge": 8}}, "that of the model, 8 by 8, not {'shortest_edge': 8}"),
        ({"do_resize": "false"}, "true or false, not 'false'"),
        ({"do_rescale": None}, "true or false, not None"),
        ({"rescale_factor": 0}, "a positive number, not 0"),
        ({"rescale_factor": float("nan")}, "a positive number, not nan"),
        ({"resample": "bilinear"}, "an integer from 0 to 5, not 'bilinear'"),
        ({"image_mean": None}, "a number, or one for each of 3 channels, not None"),
        ({"image_mean": [0.5]}, r"a number, or one for each of 3 channels, not \[0.5\]"),
        ({"image_std": [0, 1, 1]}, "a positive number, or one for each of 3 channels, not "),
        ({"image_std": "x"}, "a positive number, or one for each of 3 channels, not 'x'"),
    ],
)
def test_settings_of_images_that_are_refused(tmp_path: Path, how: dict, words: str) -> None:
    plain = {"image_mean": MEAN, "image_std": STD}
    source = listener(tmp_path / "model", plain | how, (3, 8, 8))
    with pytest.raises(
        InputError, match=f"^Setting '{next(iter(how))}' in .*_config.json must be {words}"
    ):
        image_reader(source)


@pytest.mark.parametrize("left", ["image_mean", "image_std"])
def test_a_mean_and_its_deviation_belong_together(tmp_path: Path, left: str) -> None:
    how = {"image_mean": 0.5, "image_std": 0.5}
    source = listener(tmp_path / "model", {left: how.pop(left), "do_normalize": True}, (3, 8, 8))
    with pytest.raises(InputError, match=f"must give '{next(iter(how))}', as it normalizes$"):
        image_reader(source)


def test_numbers_that_are_not_finite_name_the_settings(tmp_path: Path, images: Path) -> None:
    source = vision_folder(tmp_path / "model", PROCESSORS["vit"] | {"image_std": [0, 1, 1]})
    why = r"becomes numbers that are not finite as .*/preprocessor_config.json says$"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=why):
            image_reader(source)(sorted(images.iterdir())[0])
