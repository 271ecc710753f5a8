"""Loading of tokenizers, image processors and feature extractors from Hugging Face folders.

The package ``transformers`` is needed, but not PyTorch. No code from a folder is run, and nothing
is downloaded.
"""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError
from celosia.arch.packages import library
from celosia.generators.frontend.hugging_face_folder import read_json
from celosia.generators.frontend.spectrograms import EXTRACTOR, spectrogram_extractor

TOKENIZER_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
)
"""Files from which transformers reads a tokenizer, besides tokenizer.json, which is complete
alone."""
PREPROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files that describe how images and sounds become inputs; a folder has one of them."""


def holds_tokenizer(folder: Path) -> bool:
    """Return whether a folder contains tokenizer files other than tokenizer.json."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def read_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a Hugging Face folder, an object of the package ``transformers``.

    Raises :class:`InputError` if ``transformers`` is not installed, or if the tokenizer cannot be
    read.
    """
    package = _transformers("Texts", "text")
    return _read("tokenizer", folder, package.AutoTokenizer.from_pretrained)


def read_image_processor(folder: Path) -> Any:
    """Return the image processor of a folder, which converts images to model inputs.

    The processor uses Pillow. Raises :class:`InputError` if Pillow or ``transformers`` is not
    installed, or if the processor cannot be read.
    """
    library("PIL", "Images need", "pillow")
    package = _transformers("Images", "images")
    return _read(
        "image processor", folder, package.AutoImageProcessor.from_pretrained, backend="pil"
    )


def read_extractor(folder: Path) -> Any:
    """Return the feature extractor of a folder, which converts sounds to model inputs.

    Without PyTorch, the extractor of an Audio Spectrogram Transformer is replaced by
    :func:`spectrogram_extractor`. Raises :class:`InputError` if ``transformers`` is not installed,
    or the extractor cannot be read.
    """
    package = _transformers("Sounds", "sounds")
    paths = [folder / name for name in PREPROCESSOR_FILES if (folder / name).is_file()]
    settings = read_json(paths[0]) if paths else {}
    if settings.get("feature_extractor_type") == EXTRACTOR and not find_spec("torch"):
        return spectrogram_extractor(settings, paths[0])
    return _read("feature extractor", folder, package.AutoFeatureExtractor.from_pretrained)


def _transformers(noun: str, extra: str) -> Any:
    """Return the package transformers, which prints only errors."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    package = library("transformers", f"{noun} of Hugging Face folders need", "transformers", extra)
    package.logging.set_verbosity_error()
    return package


def _read(noun: str, folder: Path, read: Callable[..., Any], **options: Any) -> Any:
    try:
        return read(str(folder), trust_remote_code=False, local_files_only=True, **options)
    except Exception as error:
        # transformers raises whatever its classes do; its first line has the cause.
        cause = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"The {noun} of folder {folder} cannot be read: {cause}") from error
