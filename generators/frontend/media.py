"""Readers that turn image and sound files into model inputs, as the model's files describe."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.files import reading
from celosia.arch.packages import library
from celosia.generators.frontend.hugging_face_folder import is_hugging_face, read_json
from celosia.generators.frontend.image_settings import IMAGE_SETTINGS, read_image_settings
from celosia.generators.frontend.processors import (
    PREPROCESSOR_FILES,
    read_extractor,
    read_image_processor,
)
from celosia.generators.frontend.source import Source

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm")
SOUNDS = (".wav", ".flac")
Reader = Callable[[Path], NDArray[np.float64]]
_TYPES = ("image_processor_type", "feature_extractor_type", "image_processor", "feature_extractor")
"""Settings that name a processor of transformers."""
_SOUND_SETTINGS = ("sampling_rate",)
"""Settings that are known if no extractor is named."""
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "WEBP")
"""Pillow's names of the kinds of images that are read; some other kinds start programs."""
_DEEP = ("I", "F")
"""First letters of the modes in which Pillow has pixels of more than 8 bits."""


def image_reader(source: Source) -> Reader:
    """Return a function from an image's path to the model's input [channels, height, width].

    Raises :class:`InputError` if the model's files do not describe the preprocessing, or describe
    unsupported preprocessing.
    """
    folder, how, named = _settings(source)
    shape = source.shape or ()
    pillow, turned = (
        library(f"PIL.{module}", "Images need", "pillow") for module in ("Image", "ImageOps")
    )
    if len(shape) != 3:
        raise InputError(_unfit(source, f"images ({', '.join(IMAGES)})"))
    if named:
        processor = read_image_processor(folder)
    else:
        _only(folder, how, IMAGE_SETTINGS)
        plain = read_image_settings(how, shape, folder / PREPROCESSOR_FILES[0])

    def read(path: Path) -> NDArray[np.float64]:
        with reading(path, "image"):
            try:
                with pillow.open(path, formats=_FORMATS) as opened, warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    mode, kept = opened.mode, "L" if shape[0] == 1 else "RGB"
                    image = turned.exif_transpose(opened).convert(kept)
            except Exception as error:  # Pillow's readers raise many kinds
                raise InputError(f"Cannot read image {path}: {error}") from error
        if mode.startswith(_DEEP):
            raise InputError(
                f"Image {path} has pixels of more than 8 bits; save it with 8, for example as "
                "PIL.Image.fromarray((numpy.asarray(image) / 256).astype('uint8'))"
            )
        with _processing(path, folder):
            pixels = _processed(processor, image, how, shape) if named else plain(image)
        if not np.isfinite(pixels).all():
            raise InputError(
                f"Image {path} becomes numbers that are not finite as "
                f"{folder / PREPROCESSOR_FILES[0]} says"
            )
        if pixels.shape != shape:
            raise InputError(
                f"Image {path} becomes {list(pixels.shape)} by the processor of folder {folder}, "
                f"but model {source.description.name} takes {list(shape)}; set 'size' and "
                "'crop_size' there"
            )
        return pixels

    return read


def sound_reader(source: Source) -> Reader:
    """Return a function that converts a sound file, given by its path, to the model's input.

    The input is samples or [frames, features], computed by the feature extractor in the model's
    folder. Without an extractor, the input is the samples of the sound. Short sounds are padded,
    long sounds are cut. Raises :class:`InputError` if the folder describes no supported
    preprocessing.
    """
    folder, how, named = _settings(source)
    shape = source.shape or ()
    wave = int(np.prod(shape)) == max(shape, default=0)
    if not wave and not (named and len(shape) == 2):
        raise InputError(_unfit(source, f"{SOUNDS[0]} files"))
    extractor = read_extractor(folder) if named else None
    if not named:
        _only(folder, how, _SOUND_SETTINGS)
    asked = how.get("sampling_rate") if extractor is None else extractor.sampling_rate
    if type(asked) is not int or asked < 1:
        raise InputError(
            f"Folder {folder} must give 'sampling_rate' in {PREPROCESSOR_FILES[0]}, a positive "
            f"integer, not {asked!r}"
        )
    count = int(np.prod(shape))
    # Without a length extractors pad the frames, because some of them join several frames.
    length = count if wave else shape[0] * getattr(extractor, "stride", 1)
    whole = {"padding": "max_length", "max_length": length, "truncation": True}

    def read(path: Path) -> NDArray[np.float64]:
        samples = read_sound(path, asked)
        if extractor is None:
            values = np.zeros(count)
            values[: len(samples)] = samples[:count]
            return values.reshape(shape)
        with _processing(path, folder):
            for filled in [True] if wave else [False, True]:
                more = whole if filled else {}
                made = extractor(samples, sampling_rate=asked, return_tensors="np", **more)
                values = np.asarray(made[extractor.model_input_names[0]][0], np.float64)
                if wave or values.shape == shape:
                    break
            return values.reshape(shape)

    return read


def sound_length(path: Path) -> int:
    """Return the number of samples per channel in a valid sound file.

    If the file is not valid, the package ``soundfile`` raises its own error, not an
    :class:`InputError`.
    """
    soundfile = library("soundfile", "Sounds need", "soundfile", "sounds")
    return int(soundfile.info(str(path)).frames)


def read_sound(path: Path, rate: int) -> NDArray[np.float64]:
    """Return the samples of a sound file, from -1 to 1, averaged over the channels.

    Raises :class:`InputError` if the file cannot be read, is empty, or is shorter than its header
    states. The same error is raised if the sampling rate is not ``rate`` (samples per second).
    """
    soundfile = library("soundfile", "Sounds need", "soundfile", "sounds")
    try:
        with soundfile.SoundFile(str(path)) as opened:
            samples = opened.read(dtype="float64", always_2d=True)
            frequency, told = opened.samplerate, opened.extra_info
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"Cannot read sound {path}: {error}") from error
    if re.search(r"^data : .*should be", told, re.MULTILINE):
        raise InputError(f"Sound {path} ends before its header says; it was cut")
    if not len(samples):
        raise InputError(f"Sound {path} has no samples")
    if frequency != rate:
        raise InputError(
            f"Sound {path} must have {rate} samples a second, not {frequency}; resample it, for "
            f"example with: ffmpeg -i {path.name} -ar {rate} resampled.wav"
        )
    return np.asarray(samples.mean(axis=1), np.float64)


def _settings(source: Source) -> tuple[Path, Mapping[str, Any], bool]:
    """Return a model's folder, its settings, and True if transformers knows their processor."""
    folder = source.path
    paths = [folder / name for name in PREPROCESSOR_FILES] if folder else []
    path = next((candidate for candidate in paths if candidate.is_file()), None)
    if folder is None or path is None:
        raise InputError(
            f"Model {source.description.name} does not say how images or sounds become its inputs: "
            f"it has no {PREPROCESSOR_FILES[0]}; give them as .npy"
        )
    how = read_json(path)
    factor = how.get("rescale_factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float | None):
        raise InputError(f"Setting 'rescale_factor' in {path} must be a number, not {factor!r}")
    return folder, how, is_hugging_face(folder) or any(name in how for name in _TYPES)


def _only(folder: Path, how: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise :class:`InputError` if there are settings that have no effect here."""
    others = sorted(set(how) - set(known))
    if others:
        raise InputError(
            f"Settings {', '.join(others)} in {folder / PREPROCESSOR_FILES[0]} are those of a "
            f"processor that it does not name; add {_TYPES[0]!r} or {_TYPES[1]!r}"
        )


@contextmanager
def _processing(path: Path, folder: Path) -> Iterator[None]:
    """Turn any error of the processor in the block into one that names the file."""
    try:
        with np.errstate(all="ignore"):
            yield
    except Exception as error:
        cause = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"File {path} is not made an input as {folder / PREPROCESSOR_FILES[0]} says: {cause}"
        ) from error


def _unfit(source: Source, media: str) -> str:
    return (
        f"Model {source.description.name} takes inputs of the shape {list(source.shape or ())}, "
        f"which {media} are not made into; give them as .npy"
    )


def _processed(
    processor: Any, image: Any, how: Mapping[str, Any], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the result of a processor for an image.

    An image of the model's size is not resized if the processor would use another size that no
    setting demands.
    """
    sized = {"size", "crop_size", "image_processor"} & set(how)
    fits = not sized and (image.height, image.width) == shape[1:]
    pixels = processor(image, return_tensors="np")["pixel_values"][0]
    if fits and np.shape(pixels) != shape:
        as_is = {"do_resize": False, "do_center_crop": False}
        pixels = processor(image, return_tensors="np", **as_is)["pixel_values"][0]
    return np.asarray(pixels, np.float64)
