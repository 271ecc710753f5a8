"""Every language model that can be named, with what turns texts into its tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from arch.errors import InputError
from generators.frontend.characters import CharacterTokenizer
from generators.frontend.hugging_face_folder import CONFIG_FILE, is_hugging_face, read_json
from generators.frontend.hugging_face_text import load_hugging_face_text
from generators.frontend.llama2c import Llama2cTokenizer, load_llama2c
from generators.frontend.onnx.importer import ONNX_SUFFIX
from generators.frontend.onnx.text import load_onnx_text
from generators.frontend.other_files import refuse_other
from generators.frontend.text_description import TextDescription
from generators.frontend.tokenizer import TOKENIZER_FILE, NumberTokenizer, TextTokenizer
from generators.frontend.weights import Weights
from generators.graph import Decoder
from generators.quantize.calibrate import Progress
from generators.quantize.options import Quantization
from generators.quantize.quantize import quantize_decoder

LLAMA2C_SUFFIX = ".bin"
CHARACTERS_FILE = "vocab.json"
_MODELS = Path(__file__).parent / "models"


class TokenizerLike(Protocol):
    """What turns texts into tokens and back."""

    @property
    def begin(self) -> int | None:
        """Token that every text begins with; None where there is none."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens behind which a text has ended."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, the first of them ``begin`` if there is one."""

    def piece(self, token: int, before: int) -> bytes:
        """Return the bytes that a token adds to a text behind the token ``before``."""

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens."""


@dataclass(frozen=True)
class TextSource:
    """A float decoder and its tokenizer."""

    description: TextDescription
    weights: Weights
    tokenizer: TokenizerLike

    def quantize(
        self, options: Quantization | None = None, progress: Progress | None = None
    ) -> Decoder:
        """Return the decoder in integers, calibrated on texts that it makes up itself.

        Raises :class:`InputError` as :func:`generators.quantize.quantize.quantize_decoder`.
        """
        begin = self.tokenizer.begin
        return quantize_decoder(self.description, self.weights, begin, options, progress)


def load_text(checkpoint: str, tokenizer: Path | None = None) -> TextSource:
    """Return the language model of a name or a path.

    ``checkpoint`` is a file of llama2.c (``.bin``), with its tokenizer in another; or a folder
    with config.json and model.safetensors, as Hugging Face's libraries write them, of Llama or
    GPT-2, where ``tokenizer`` is its own tokenizer.json if not given, or its own vocab.json where
    each token is a character; or the name of such a folder that comes with the package.

    Raises :class:`InputError` where there is no such model, where it or its tokenizer cannot be
    read, or where they do not fit.
    """
    folder = _MODELS / checkpoint
    path = folder if is_hugging_face(folder) else Path(checkpoint)
    if is_hugging_face(path):
        model, weights = load_hugging_face_text(path, path.name)
        return TextSource(model, weights, _tokenizer(path, tokenizer, model))
    if path.suffix == ONNX_SUFFIX:
        model, weights = load_onnx_text(path)
        return TextSource(model, weights, _tokenizer(path.parent, tokenizer, model))
    if path.is_dir():
        raise InputError(f"Folder {path} has no {CONFIG_FILE}")
    if path.suffix != LLAMA2C_SUFFIX:
        refuse_other(path)
    model, weights = load_llama2c(path)
    if tokenizer is None:
        raise InputError(f"Checkpoint {path} needs a tokenizer")
    return TextSource(model, weights, Llama2cTokenizer(tokenizer, model.vocabulary))


def _tokenizer(folder: Path, given: Path | None, model: TextDescription) -> TokenizerLike:
    """Return the tokenizer of a folder's model, from another file if one is given."""
    beside = [folder / name for name in (TOKENIZER_FILE, CHARACTERS_FILE)]
    there = [one for one in beside if one.is_file()]
    if given is None and not there:
        return NumberTokenizer(model.vocabulary)
    path = there[0] if given is None else given
    if path.name == CHARACTERS_FILE:
        return CharacterTokenizer(path, model.vocabulary)
    if path.suffix == LLAMA2C_SUFFIX:
        return Llama2cTokenizer(path, model.vocabulary)
    config = read_json(folder / CONFIG_FILE) if is_hugging_face(folder) else {}
    begin, ends = config.get("bos_token_id"), config.get("eos_token_id")
    if not isinstance(begin, int) or not 0 <= begin < model.vocabulary:
        begin = None
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return TextTokenizer(path, begin, frozenset(one for one in listed if isinstance(one, int)))
