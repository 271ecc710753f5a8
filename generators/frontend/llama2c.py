"""Checkpoints (in the legacy format) and tokenizers of llama2.c (github.com/karpathy/llama2.c)."""

import itertools
import struct
from pathlib import Path

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.files import reading, within
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.tokenizer import TokenizerLike
from celosia.generators.frontend.weights import Floats, Weights, check_weights

HEADER = struct.Struct("<7i")
"""dim, ffn, layers, heads, kv_heads, vocabulary (negative: the head has separate weights),
positions."""
BEGIN, END = 1, 2
"""The token before a text, and the token after it."""
_FIRST_BYTE = 3
"""Token of the byte 0."""
_LONGEST_TOKEN = 1 << 16
_LARGEST = 1 << 24
"""Smallest size that no model has."""


def load_llama2c(path: Path) -> tuple[TextDescription, Weights]:
    """Return the description and weights of a llama2.c checkpoint in the legacy format.

    A checkpoint has seven int32 numbers (:data:`HEADER`), then float32 arrays. Raises
    :class:`InputError` if the file cannot be read, or if its size does not follow from the header.
    """
    with reading(path, "checkpoint"):
        content = path.read_bytes()
    if len(content) < HEADER.size:
        raise InputError(f"Checkpoint {path} is too short for a header of {HEADER.size} bytes")
    header = HEADER.unpack_from(content)
    dim, ffn, layers, heads, kv_heads, vocabulary, positions = header
    if (
        not all(0 < abs(number) < _LARGEST for number in header)
        or min(header[:5]) < 1
        or positions < 1
    ):
        raise InputError(
            f"File {path} is not a llama2.c checkpoint, as its header has no sizes of a model; "
            "use such a file, an ONNX file, or a folder with config.json and model.safetensors"
        )
    with within(f"checkpoint {path}"):
        model = TextDescription(
            name=path.stem,
            vocabulary=abs(vocabulary),
            positions=positions,
            dim=dim,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            ffn=ffn,
            tied=vocabulary > 0,
        )
    # In the order of the file; a matrix is [outputs, inputs], and rotated pairs are adjacent.
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("words", (model.vocabulary, dim)),
        ("attention_norm", (layers, dim)),
        *((name, (layers, *model.projections[name])) for name in _ATTENTION),
        ("mlp_norm", (layers, dim)),
        *((name, (layers, *model.projections[name])) for name in _MLP),
        ("final_norm.weight", (dim,)),
        ("rotary", (2, positions, model.head_dim // 2)),
    ]
    if not model.tied:
        shapes.append(("head.weight", (model.vocabulary, dim)))
    expected = HEADER.size + 4 * sum(int(np.prod(shape)) for _, shape in shapes)
    if len(content) != expected:
        raise InputError(
            f"Checkpoint {path} must have {expected} bytes by its header, not {len(content)}"
        )
    numbers = np.frombuffer(content, "<f4", offset=HEADER.size)
    weights: dict[str, Floats] = {}
    for name, shape in shapes:
        size = int(np.prod(shape))
        tensor, numbers = numbers[:size].reshape(shape).astype(np.float64), numbers[size:]
        if name in (*_ATTENTION, *_MLP, "attention_norm", "mlp_norm"):
            weights |= {f"layers.{i}.{name}.weight": tensor[i] for i in range(layers)}
        elif name != "rotary":
            weights[name] = tensor
    with within(f"checkpoint {path}"):
        return model, check_weights(weights, model)


_ATTENTION = ("query", "key", "value", "output")
_MLP = ("gate", "down", "up")
"""Matrices w1, w2 and w3 of llama2.c."""


class Llama2cTokenizer(TokenizerLike):
    """The byte-pair tokenizer of llama2.c, which merges the tokens of characters by score.

    A text begins with the token BEGIN and, unless the text is empty, a space. Byte b of a character
    without a token becomes token ``3 + b``. As long as a pair forms a token, the pair with the
    highest score is merged; of equal scores, the first.
    """

    begin = BEGIN
    """Token that every text begins with."""
    ends = frozenset({BEGIN, END})
    """Tokens after which a text has ended."""

    def __init__(self, path: Path, vocabulary: int):
        """Read a tokenizer file: the longest token, then score, length and bytes of each token.

        ``vocabulary`` is the number of tokens, which the file does not contain. Raises
        :class:`InputError` if it cannot be read or has another number of tokens.
        """
        with reading(path, "tokenizer"):
            content = path.read_bytes()
        self.pieces: list[bytes] = []
        self.scores: list[float] = []
        place = 4
        while place + 8 <= len(content):
            score, size = struct.unpack_from("<fi", content, place)
            place += 8 + size
            if not 0 <= size < _LONGEST_TOKEN or place > len(content):
                break
            self.pieces.append(content[place - size : place])
            self.scores.append(score)
        if place != len(content) or len(self.pieces) != vocabulary:
            raise InputError(f"Tokenizer {path} does not hold the {vocabulary} tokens of the model")
        self._numbers = {piece: number for number, piece in reversed([*enumerate(self.pieces)])}

    def encode(self, text: str) -> list[int]:
        """Return the list of a text's tokens, which begins with BEGIN.

        Raises :class:`InputError` if the text needs a byte that is not in the vocabulary.
        """
        tokens = [BEGIN]
        if text:
            tokens += self._character(b" ")
        for character in text:
            tokens += self._character(character.encode())
        while True:
            pairs = itertools.pairwise(tokens)
            merged = [self._numbers.get(self.pieces[a] + self.pieces[b]) for a, b in pairs]
            scores = [-np.inf if token is None else self.scores[token] for token in merged]
            if not scores or max(scores) == -np.inf:
                return tokens
            best = int(np.argmax(scores))
            merge = merged[best]
            assert merge is not None
            tokens[best : best + 2] = [merge]

    def _character(self, character: bytes) -> list[int]:
        number = self._numbers.get(character)
        if number is not None:
            return [number]
        tokens = [_FIRST_BYTE + byte for byte in character]
        if max(tokens) >= len(self.pieces):
            raise InputError(f"Character {character.decode()!r} has no token")
        return tokens

    def piece(self, token: int, before: int) -> bytes:
        """Return the bytes that ``token`` adds to a text.

        ``before`` is the previous token. If it is BEGIN, a space at the beginning of the bytes is
        left out.
        """
        piece = self.pieces[token]
        if before == BEGIN:
            piece = piece.removeprefix(b" ")
        if len(piece) == 6 and piece.startswith(b"<0x"):
            return bytes([int(piece[3:5], 16)])
        return piece
