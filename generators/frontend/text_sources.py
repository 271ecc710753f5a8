"""Loading of any language model by name or path, with its tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.files import check_links
from celosia.generators.frontend.base_description import read_fields
from celosia.generators.frontend.folder_tokenizer import read_text_tokenizer
from celosia.generators.frontend.hugging_face_folder import (
    CONFIG_FILE,
    generation_settings,
    is_hugging_face,
    model_type,
    read_json,
)
from celosia.generators.frontend.hugging_face_pair import PAIR_FAMILIES, load_hugging_face_pair
from celosia.generators.frontend.hugging_face_text import load_hugging_face_text
from celosia.generators.frontend.llama2c import Llama2cTokenizer, load_llama2c
from celosia.generators.frontend.onnx.file import file_and_output, is_onnx
from celosia.generators.frontend.onnx.recognized import is_causal
from celosia.generators.frontend.onnx.text import load_onnx_text
from celosia.generators.frontend.other_files import refuse_folder, refuse_other
from celosia.generators.frontend.processors import holds_tokenizer
from celosia.generators.frontend.sample_files import read_array
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_families import REFUSED, TEXT_FAMILIES
from celosia.generators.frontend.tokenizer import (
    TOKENIZER_FILE,
    CharacterTokenizer,
    NumberTokenizer,
    TextTokenizer,
    TokenizerLike,
    read_sentences,
    read_tokenizer_file,
)
from celosia.generators.frontend.weights import WEIGHTS_FILE, Weights, read_weights
from celosia.generators.graph.quantized import Decoder
from celosia.generators.quantize.calibrate import Calibration, Progress
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.parting import Parting, compare_models
from celosia.generators.quantize.quantize import quantize_calibrated, quantize_decoder
from celosia.generators.quantize.texts import calibration_texts, random_sources

LLAMA2C_SUFFIX = ".bin"
CHARACTERS_FILE = "vocab.json"
DECODER_FILE = "decoder.toml"
"""Description of a decoder; its weights are beside it, like an encoder's."""
SOURCES_FILE = "sources.txt"
"""Sources to calibrate an encoder-decoder on, one a line, beside its description."""
_MODELS = Path(__file__).parents[1] / "models"
_COMPARED = 8
"""Texts of the calibration on which integers are compared with floats."""


@dataclass(frozen=True)
class TextSource:
    """A float language model and its tokenizer."""

    description: TextDescription
    weights: Weights
    tokenizer: TokenizerLike
    tokenizer_file: Path | None = None
    """The file that the tokenizer was read from; None if tokens are numbers."""
    sources: tuple[str, ...] = ()
    """Sources to calibrate an encoder-decoder on, if the model comes with some."""

    def quantize(
        self, options: Quantization | None = None, progress: Progress | None = None
    ) -> Decoder:
        """Return the quantized decoder, calibrated on texts that the model samples.

        Raises :class:`InputError` in the same cases as
        :func:`celosia.generators.quantize.quantize.quantize_decoder`.
        """
        return self.calibrate(None, options, progress)[0]

    def first_layers(self, model: TextDescription, options: Quantization) -> Decoder:
        """Return a quantized decoder with only the first layers of the whole model.

        If this short decoder does not fit a machine, the whole model does not fit either. ``model``
        describes the short decoder, including its number of layers. The calibration uses one text
        of one token.
        """
        few = replace(options, texts=1, length=1)
        return quantize_decoder(model, self.weights, 0, few)

    def calibrate(
        self,
        texts: Sequence[Sequence[int]] | None,
        options: Quantization | None = None,
        progress: Progress | None = None,
    ) -> tuple[Decoder, Parting]:
        """Return the quantized decoder, and its errors against the float model on at most 8 texts.

        ``texts`` are lists of token numbers. If ``texts`` is None, the model samples texts. For an
        encoder-decoder, ``texts`` are inputs of the encoder; None selects inputs in the model's
        folder or random inputs. Raises :class:`InputError` if a text is invalid.
        """
        options = options or Quantization()
        model, weights = self.description, self.weights
        if model.source_layers:
            own = [self.tokenizer.encode(text) for text in self.sources]
            texts = texts or own or random_sources(model, options.texts, options.seed)
        samples = self.sample(texts, options, progress)
        decoder = quantize_calibrated(model, weights, samples, None, options, progress)
        some = [*samples.tokens[:_COMPARED, : decoder.places]]
        sources = texts or () if model.source_layers else ()
        return decoder, compare_models(decoder, weights, some, sources, progress)

    def sample(
        self,
        texts: Sequence[Sequence[int]] | None,
        options: Quantization | None = None,
        progress: Progress | None = None,
    ) -> Calibration:
        """Return the ranges of values in all tensors of the float model on calibration texts.

        ``texts`` are lists of token numbers. If ``texts`` is None, the model samples texts. For an
        encoder-decoder, ``texts`` are inputs of the encoder, and None selects random inputs. Raises
        :class:`InputError` if a text is invalid.
        """
        model, chosen = self.description, options or Quantization()
        begin = None if model.source_layers else self.tokenizer.begin
        return calibration_texts(model, self.weights, begin, chosen, progress, texts)

    def read_calibration(self, path: Path) -> list[list[int]]:
        """Return calibration texts from a file, each a list of token numbers.

        A ``.npy`` file contains token numbers [count, n]; any other file has one text per line.
        Raises :class:`InputError` if the file cannot be read, or a token is not in the model's
        vocabulary.
        """
        if path.suffix != ".npy":
            return [self.tokenizer.encode(line) for line in read_sentences(path, blank=True)]
        numbers, known = read_array(path, "token rows"), self.description.vocabulary
        if numbers.ndim != 2 or numbers.dtype.kind not in "iu" or not numbers.size:
            raise InputError(
                f"Token rows {path} must be integers [count, n], not {numbers.dtype} "
                f"{list(numbers.shape)}"
            )
        rows = numbers.astype(np.int64)
        wrong = rows[(rows < 0) | (rows >= known)]
        if wrong.size:
            raise InputError(
                f"Token rows {path} must hold numbers from 0 to {known - 1}, not {wrong[0]}"
            )
        return [[int(number) for number in row] for row in rows]


def is_text(model: str) -> bool:
    """Return whether ``model``, a name or a path, stands for a language model.

    The result is also true for types of language models that are known but not supported.
    """
    path = Path(model)
    check_links(path)
    if is_packaged(model) or path.suffix == LLAMA2C_SUFFIX or (path / DECODER_FILE).is_file():
        return True
    if is_hugging_face(path):
        return model_type(path) in {
            *TEXT_FAMILIES,
            *PAIR_FAMILIES,
            *REFUSED,
        }
    return is_onnx(path) and file_and_output(path)[0].is_file() and is_causal(path)


def is_packaged(model: str) -> bool:
    """Return whether ``model`` is the name of a language model that comes with the package."""
    return Path(model).name == model and _is_folder(_MODELS / model)


def load_text(checkpoint: str, tokenizer: Path | None = None) -> TextSource:
    """Load a language model by its name or its path, and return it with its tokenizer.

    - ``checkpoint``: a packaged model's name, or the path of a llama2.c file (``.bin``), an ONNX
      file or a model folder.
    - ``tokenizer``: the path of a tokenizer file; None for the file beside the model. If no file is
      found, texts are token numbers.

    Raises :class:`InputError` if the model or tokenizer cannot be read, or they do not fit each
    other.
    """
    folder = _MODELS / checkpoint
    path = folder if _is_folder(folder) else Path(checkpoint)
    check_links(path)
    if (path / DECODER_FILE).is_file():
        model = read_fields(path / DECODER_FILE, TextDescription)
        weights = read_weights(path / WEIGHTS_FILE, model)
        own = path / SOURCES_FILE
        sources = (
            tuple(read_sentences(own, blank=True)) if model.source_layers and own.is_file() else ()
        )
        return _source(path, tokenizer, model, weights, sources)
    if is_hugging_face(path):
        pair = model_type(path) in PAIR_FAMILIES
        load = load_hugging_face_pair if pair else load_hugging_face_text
        model, weights = load(path)
        return _source(path, tokenizer, model, weights)
    if is_onnx(path):
        model, weights = load_onnx_text(path)
        return _source(file_and_output(path)[0].parent, tokenizer, model, weights)
    if path.is_dir():
        refuse_other(path)
        refuse_folder(path, CONFIG_FILE)
        raise InputError(f"Folder {path} has no {CONFIG_FILE}")
    if path.suffix != LLAMA2C_SUFFIX:
        refuse_other(path)
    model, weights = load_llama2c(path)
    names = (f"tok{model.vocabulary}{LLAMA2C_SUFFIX}", f"tokenizer{LLAMA2C_SUFFIX}")
    beside = (path.with_name(name) for name in names)
    tokenizer = tokenizer or next((file for file in beside if file.is_file()), None)
    known = None if tokenizer is None else Llama2cTokenizer(tokenizer, model.vocabulary)
    return TextSource(model, weights, known or NumberTokenizer(model.vocabulary), tokenizer)


def _is_folder(path: Path) -> bool:
    return is_hugging_face(path) or (path / DECODER_FILE).is_file()


def open_tokenizer(
    path: Path | None,
    vocabulary: int,
    begin: int | None = None,
    ends: frozenset[int] = frozenset(),
    *,
    split: bool = False,
    cleaned: bool = False,
) -> TokenizerLike:
    """Return the tokenizer in a file or, if ``path`` is None, one for texts of token numbers.

    The file is a vocab.json with characters, a ``.bin`` file of llama2.c, or a tokenizer.json.
    Arguments that only a tokenizer.json uses:

    - ``begin``: the token of an empty text.
    - ``split``: true to encode names of special tokens as ordinary text.
    - ``cleaned``: true to decode without spaces before punctuation.

    Raises :class:`InputError` if the file cannot be read or does not fit ``vocabulary``.
    """
    if path is None:
        return NumberTokenizer(vocabulary, ends)
    if path.name == CHARACTERS_FILE:
        return CharacterTokenizer(path, vocabulary)
    if path.suffix == LLAMA2C_SUFFIX:
        return Llama2cTokenizer(path, vocabulary)
    tokenizer = read_tokenizer_file(path)
    tokenizer.encode_special_tokens = split
    return TextTokenizer(tokenizer, begin, ends, cleaned=cleaned)


def _source(
    folder: Path,
    tokenizer_path: Path | None,
    model: TextDescription,
    weights: Weights,
    sources: tuple[str, ...] = (),
) -> TextSource:
    """Return a folder's model with its tokenizer, from another file if one is given."""
    begin, ends = _marks(folder, model)
    own = folder if tokenizer_path is None else tokenizer_path.parent
    whole = is_hugging_face(own) and holds_tokenizer(own)
    if whole and (tokenizer_path is None or tokenizer_path.name == TOKENIZER_FILE):
        known = read_text_tokenizer(own, begin, ends)
        return TextSource(model, weights, known, own / TOKENIZER_FILE, sources)
    beside = [folder / name for name in (TOKENIZER_FILE, CHARACTERS_FILE)]
    path = tokenizer_path or next((candidate for candidate in beside if candidate.is_file()), None)
    tokenizer = open_tokenizer(path, model.vocabulary, begin, ends)
    return TextSource(model, weights, tokenizer, path, sources)


def _marks(folder: Path, model: TextDescription) -> tuple[int | None, frozenset[int]]:
    """Return the token that begins an empty text, if any, and those that end texts.

    They are read from generation_config.json, or else from config.json.
    """
    if not is_hugging_face(folder):
        return None, frozenset()
    config = read_json(folder / CONFIG_FILE) | generation_settings(folder)
    begin, listed = config.get("bos_token_id"), config.get("eos_token_id")
    if model.source_layers or not isinstance(begin, int) or not 0 <= begin < model.vocabulary:
        begin = None
    ends = listed if isinstance(listed, list) else [listed]
    return begin, frozenset(end for end in ends if isinstance(end, int))
