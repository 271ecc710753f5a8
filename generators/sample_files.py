"""Inputs and labels of models from files: arrays, texts, folders of images and of sounds."""

import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.errors import InputError
from arch.files import reading, within
from arch.packages import library
from generators.frontend.hugging_face_folder import read_json
from generators.frontend.source import Source
from generators.frontend.tokenizer import read_sentences

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm")
PREPROCESSOR_FILE = "preprocessor_config.json"
"""The file beside a model that says how images and sounds become its inputs."""


def read_samples(path: Path, source: Source) -> list[NDArray[np.generic]]:
    """Return inputs of a model from a file or a folder, as the machine's part takes them.

    A ``.npy`` file holds inputs of the model's own shape behind their count. A folder holds images
    or ``.wav`` files, taken in the order of their names, for models with a PREPROCESSOR_FILE that
    says how. Any other file is a text with one input in each line, for models that take texts.

    Raises :class:`InputError` where the file cannot be read or does not fit the model.
    """
    if path.is_dir():
        return [source.prepare(one) for one in _folder(path, source)]
    if path.suffix != ".npy":
        if source.tokenizer is None:
            raise InputError(
                f"Model {source.description.name} does not take texts; give its inputs as .npy, "
                f"not {path}"
            )
        return [source.prepare(source.encode(one)) for one in read_sentences(path)]
    values = read_array(path, "inputs")
    with within(path):
        source.check(values)
    return [source.prepare(one) for one in values]


def read_answers(path: Path) -> list[tuple[str, str]]:
    """Return the sources of a file and the answer to each: a tab stands between, on a line each.

    Raises :class:`InputError` where the file cannot be read, or a line has not one tab.
    """
    found = []
    for line in read_sentences(path):
        source, *rest = line.split("\t")
        if len(rest) != 1:
            raise InputError(f"Answers {path} must have one tab in each line, not {line!r}")
        found.append((source, rest[0]))
    return found


def read_array(path: Path, what: str) -> NDArray[np.generic]:
    """Return the numbers in a ``.npy`` file; raise :class:`InputError` where there are none."""
    try:
        values = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"Cannot read {what} {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, OverflowError) as error:
        raise InputError(f"{what.capitalize()} {path} are not a NumPy array: {error}") from error
    except MemoryError as error:
        raise InputError(f"{what.capitalize()} {path} do not fit this computer's memory") from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf":
        raise InputError(f"{what.capitalize()} {path} must be an array of numbers")
    return values


def read_labels(path: Path, source: Source) -> NDArray[np.int64]:
    """Return the right class of each input, [count].

    A ``.npy`` file holds their numbers, any other a number or a name of the model's in each line.

    Raises :class:`InputError` where the file cannot be read or a label is no class of the model.
    """
    if path.suffix == ".npy":
        values = read_array(path, "labels")
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"Labels {path} must be integers [count], not {list(values.shape)}")
        return values.astype(np.int64)
    names = {name: number for number, name in enumerate(source.labels)}
    found = []
    for line in read_sentences(path):
        number = names.get(line, int(line) if line.isdecimal() else -1)
        if number < 0:
            known = f"or one of {', '.join(names)}" if names else "as the model names none"
            raise InputError(f"Label {line!r} in {path} must be the number of a class, {known}")
        found.append(number)
    return np.array(found, np.int64)


def _folder(path: Path, source: Source) -> list[NDArray[np.float64]]:
    model, shape = source.description.name, source.shape or ()
    files = sorted(one for one in path.iterdir() if one.is_file())
    sounds = [one for one in files if one.suffix.lower() == ".wav"]
    images = [one for one in files if one.suffix.lower() in IMAGES]
    if not sounds and not images:
        raise InputError(f"Folder {path} holds neither images ({', '.join(IMAGES)}) nor .wav files")
    if source.path is None or not (source.path / PREPROCESSOR_FILE).is_file():
        raise InputError(
            f"Model {model} does not say how images or sounds become its inputs: it has no "
            f"{PREPROCESSOR_FILE}; give them as .npy"
        )
    how = read_json(source.path / PREPROCESSOR_FILE)
    if images and len(shape) == 3:
        return [_image(one, how, shape) for one in images]
    if sounds and int(np.prod(shape)) == max(shape, default=0):
        return [_sound(one, how, shape) for one in sounds]
    what = "images" if images else ".wav files"
    raise InputError(
        f"Model {model} takes inputs of the shape {list(shape)}, which {what} are not made into; "
        "give them as .npy"
    )


def _image(path: Path, how: Mapping[str, Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return an image as [channels, height, width], scaled and shifted as a model asks."""
    pillow = library("PIL.Image", "Images need", "pillow")
    with reading(path, "image"), pillow.open(path) as opened:
        image = opened.convert({1: "L", 3: "RGB"}.get(shape[0], "RGB"))
    if (image.height, image.width) != shape[1:]:
        method = how.get("resample", pillow.Resampling.BILINEAR)
        image = image.resize((shape[2], shape[1]), method)
    values = np.asarray(image, np.float64).reshape(shape[1], shape[2], -1)
    if how.get("do_rescale", True):
        values = values * float(how.get("rescale_factor", 1 / 255))
    if how.get("do_normalize", "image_mean" in how):
        mean, spread = (np.array(how[name], np.float64) for name in ("image_mean", "image_std"))
        values = (values - mean) / spread
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def _sound(path: Path, how: Mapping[str, Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a sound from -1 to 1, cut or filled up with silence."""
    try:
        with wave.open(str(path), "rb") as opened:
            rate, width = opened.getframerate(), opened.getsampwidth()
            channels, data = opened.getnchannels(), opened.readframes(opened.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise InputError(f"Cannot read sound {path}: {error}") from error
    asked = how.get("sampling_rate", rate)
    if width != 2 or rate != asked:
        raise InputError(
            f"Sound {path} must have samples of 16 bits and {asked} a second, not of {8 * width} "
            f"bits and {rate}"
        )
    samples = np.frombuffer(data, "<i2").reshape(-1, channels).mean(axis=1) / (1 << 15)
    values = np.zeros(int(np.prod(shape)))
    values[: len(samples)] = samples[: len(values)]
    return values.reshape(shape)
