"""Checkpoints and tokenizers of llama2.c: read, or refused in one sentence."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.llama2c import Llama2cTokenizer, load_llama2c
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text

STORIES = Path(__file__).parents[1] / "examples" / "stories260k"
SIZES = (12, 10, 2, 6, 3, -7, 5)


def refused(message, call, *arguments) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(*arguments)


def checkpoint(sizes, count=None) -> bytes:
    """Return a checkpoint whose numbers are their own places."""
    dim, ffn, layers, heads, kv_heads, vocabulary, positions = sizes
    kv_dim = dim // heads * kv_heads
    words = abs(vocabulary) * dim
    layer = 2 * dim + 2 * dim * dim + 2 * kv_dim * dim + 3 * ffn * dim
    total = words * (1 + (vocabulary < 0)) + layers * layer + dim + positions * (dim // heads)
    numbers = np.arange(total if count is None else count, dtype="<f4")
    return struct.pack("<7i", *sizes) + numbers.tobytes()


def test_every_array_finds_its_place(tmp_path) -> None:
    path = tmp_path / "toy.bin"
    path.write_bytes(checkpoint(SIZES))
    model, weights = load_llama2c(path)
    assert (model.name, model.vocabulary, model.positions, model.tied) == ("toy", 7, 5, False)
    assert (model.kv_heads, model.head_dim, model.ffn, model.norm) == (3, 2, 10, "rmsnorm")
    place = 7 * 12
    starts = {}
    for name, size in (
        *(("attention_norm", 12), ("query", 144), ("key", 72), ("value", 72), ("output", 144)),
        *(("mlp_norm", 12), ("gate", 120), ("down", 120), ("up", 120)),
    ):
        starts[name] = (place, size)
        place += 2 * size
    for name, (start, size) in starts.items():
        for layer in range(2):
            matrix = weights[f"layers.{layer}.{name}.weight"]
            np.testing.assert_array_equal(matrix.ravel(), start + layer * size + np.arange(size))
    assert weights["final_norm.weight"][0] == place
    assert weights["head.weight"][0, 0] == place + 12 + 5 * 2
    assert weights["words"][3, 4] == 3 * 12 + 4


def test_without_a_tokenizer_texts_are_token_numbers(tmp_path) -> None:
    path = tmp_path / "toy.bin"
    path.write_bytes(checkpoint(SIZES))
    source = load_text(str(path))
    assert source.tokenizer.encode("3 6 0") == [3, 6, 0]
    assert source.tokenizer_file is None


def test_checkpoints_that_are_refused(tmp_path) -> None:
    path = tmp_path / "toy.bin"
    message = f"Cannot read checkpoint {path}: No such file or directory"
    refused(message, load_llama2c, path)
    path.write_bytes(b"short")
    refused(f"Checkpoint {path} is too short for a header of 28 bytes", load_llama2c, path)
    path.write_bytes(checkpoint(SIZES, 100))
    message = f"Checkpoint {path} must have {len(checkpoint(SIZES))} bytes by its header, not 428"
    refused(message, load_llama2c, path)
    path.write_bytes(checkpoint((12, 10, 2, 6, 4, 7, 5)))
    message = (
        "Model field heads must be a multiple of kv_heads, but heads is 6 and kv_heads is 4 "
        f"in checkpoint {path}"
    )
    refused(message, load_llama2c, path)
    content = bytearray(checkpoint(SIZES))
    content[28:32] = struct.pack("<f", np.inf)
    path.write_bytes(content)
    message = f"Weight 'words' must hold finite numbers only in checkpoint {path}"
    refused(message, load_llama2c, path)


def write_tokenizer(path, tokens) -> None:
    pieces = b"".join(struct.pack("<fi", score, len(piece)) + piece for piece, score in tokens)
    path.write_bytes(struct.pack("<i", 8) + pieces)


BYTES = [(f"<0x{byte:02X}>".encode(), 0.0) for byte in range(256)]
MARKS = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0)]
PAIRS = [(b" ", -9.0), (b"a", -9.0), (b"b", -9.0), (b"ab", -2.0), (b" a", -1.0), (b"bb", -3.0)]


def test_the_best_pair_is_merged_first_and_bytes_stand_in(tmp_path) -> None:
    path = tmp_path / "tokens.bin"
    write_tokenizer(path, [*MARKS, *BYTES, *PAIRS])
    tokenizer = Llama2cTokenizer(path, 265)
    space, a, b, ab, space_a, bb = range(259, 265)
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("ab") == [1, space_a, b]
    assert tokenizer.encode("bab") == [1, space, b, ab]
    assert tokenizer.encode("bbb") == [1, space, bb, b]
    assert tokenizer.encode("aé") == [1, space_a, 3 + 0xC3, 3 + 0xA9]
    for text in ("", "ab", "bab b", "é a\n", "a"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([1, a, 3 + 0xC3, 2]) == "a\N{REPLACEMENT CHARACTER}"
    write_tokenizer(path, [*MARKS, *PAIRS])
    short = Llama2cTokenizer(path, 9)
    refused("Character 'c' has no token", short.encode, "abc")


def test_tokenizers_that_are_refused(tmp_path) -> None:
    path = tmp_path / "tokens.bin"
    message = f"Cannot read tokenizer {path}: No such file or directory"
    refused(message, Llama2cTokenizer, path, 9)
    write_tokenizer(path, [*MARKS, *PAIRS])
    message = f"Tokenizer {path} does not hold the 10 tokens of the model"
    refused(message, Llama2cTokenizer, path, 10)
    path.write_bytes(path.read_bytes()[:-1])
    message = f"Tokenizer {path} does not hold the 9 tokens of the model"
    refused(message, Llama2cTokenizer, path, 9)


def test_words_of_the_real_tokenizer() -> None:
    tokenizer = Llama2cTokenizer(STORIES / "tok512.bin", 512)
    tokens = tokenizer.encode("Once upon a time")
    assert tokens == [1, 403, 407, 261, 378]
    assert tokenizer.decode(tokens) == "Once upon a time"


def test_other_files_are_no_checkpoints(tmp_path) -> None:
    path = tmp_path / "notes.bin"
    path.write_text("# Some text that is long enough for a header of seven integers\n")
    message = (
        f"File {path} is not a llama2.c checkpoint, as its header has no sizes of a model; use "
        "such a file, an ONNX file, or a folder with config.json and model.safetensors"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_llama2c(path)


@pytest.mark.parametrize(
    ("name", "content", "start"),
    [
        ("m.pt", b"PK\x03\x04", "it is PyTorch's own, which may run code when it is read; export"),
        ("m.gguf", b"GGUF", "it is llama.cpp's; use the folder with config.json and"),
        ("renamed.dat", b"GGUF", "it is llama.cpp's; use the folder with config.json and"),
        ("m.tflite", b"\x1c\x00\x00\x00TFL3", "it is TensorFlow Lite's; export the model to ONNX"),
        ("model.safetensors", b"", "it holds tensors alone; give the folder with it"),
    ],
)
def test_other_forms_are_told_what_to_do(tmp_path, name, content, start) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for load in (load_source, load_text):
        with pytest.raises(ValueError, match=f"^File {re.escape(str(path))} is not read: {start}"):
            load(str(path))
    path.unlink()
    readme = tmp_path / "README.md"
    readme.write_text("# A model\n")
    with pytest.raises(ValueError, match=r"is not a model that is known; use a folder, an ONNX"):
        load_text(str(readme))
