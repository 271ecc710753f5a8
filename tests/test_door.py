"""Texts as they enter the machine and leave it, against transformers' own tokenizers."""

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import celosia as library
from celosia.arch.errors import InputError
from celosia.generators.export.compiled_folder import load_compiled_text
from celosia.generators.frontend.pieces import REPLACEMENT
from celosia.generators.frontend.sample_files import read_samples
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.tb.models.flash_image import text_flash_image
from celosia.tb.models.run_text import Pieces, run_text
from tests.support.c_text import CModel
from tests.support.door import (
    DECODERS,
    ENCODERS,
    TEXTS,
    Kind,
    decoder_folder,
    encoder_folder,
    reference,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


@pytest.mark.parametrize("kind", ENCODERS, ids=lambda kind: kind.name)
def test_sentences_are_what_an_encoder_was_trained_with(tmp_path: Path, kind: Kind) -> None:
    folder = tmp_path / "model"
    encoder_folder(kind, folder)
    tokenizer = reference(folder)
    source = load_source(str(folder))
    texts = [text for text in TEXTS if text.strip()]
    padded = [text for text in texts if source.padding in tokenizer(text)["input_ids"]]
    for text in padded:
        with pytest.raises(InputError, match=r"must be without its padding, token 1, "):
            source.prepare(source.encode(text))
    assert len(padded) <= 1
    texts = [text for text in texts if text not in padded]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    samples = read_samples(tmp_path / "texts.txt", source)
    right = [
        tokenizer(text, truncation=True, max_length=min(128, tokenizer.model_max_length))[
            "input_ids"
        ]
        for text in texts
    ]
    assert [sample.tolist() for sample in samples] == right
    assert source.count_truncated(texts) == sum(
        len(tokenizer(text)["input_ids"]) > len(ids) for text, ids in zip(texts, right, strict=True)
    )


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name)
def test_prompts_are_what_a_decoder_was_trained_with(tmp_path: Path, kind: Kind) -> None:
    decoder_folder(kind, tmp_path / "model")
    tokenizer = reference(tmp_path / "model")
    own = load_text(str(tmp_path / "model")).tokenizer
    for text in TEXTS:
        right = tokenizer(text)["input_ids"]
        if right or own.begin is not None:
            assert own.encode(text) == (right or [own.begin]), text
        assert own.decode(right) == tokenizer.decode(right, skip_special_tokens=True), text


STREAMED = [kind for kind in DECODERS if kind.name in ("gpt2", "llama", "gemma", "unigrams")]


@pytest.mark.parametrize("kind", STREAMED, ids=lambda kind: kind.name)
def test_streams_are_whole_characters(tmp_path: Path, kind: Kind) -> None:
    decoder_folder(kind, tmp_path / "model")
    own = load_text(str(tmp_path / "model")).tokenizer
    rng = np.random.default_rng(1)
    vocabulary = len(reference(tmp_path / "model"))
    drawn = [rng.integers(0, vocabulary, 20).tolist() for _ in range(20)]
    for tokens in [*(own.encode(text) for text in TEXTS if text), *drawn]:
        shown: list[str] = []
        pieces = Pieces(own)
        for token in tokens:
            shown.append(pieces.add([token]))
            assert REPLACEMENT not in "".join(shown) or tokens in drawn
        shown.append(pieces.end())
        assert "".join(shown) == pieces.text == own.decode(tokens)


@pytest.mark.skipif(
    importlib.util.find_spec("peakrdl_cheader") is None, reason="PeakRDL is not installed"
)
@pytest.mark.parametrize("kind", STREAMED, ids=lambda kind: kind.name)
def test_the_driver_in_c_prints_what_the_tokenizer_decodes(
    celosia, tmp_path: Path, kind: Kind
) -> None:
    decoder_folder(kind, tmp_path / "model")
    options = ("--config", "story", "--prompt", "hello", "--steps", "2", "--context", "20")
    code, _, errors = celosia(
        "compile", tmp_path / "model", *options, "--add", "c", "--out", tmp_path / "c"
    )
    assert code == 0, errors
    model = CModel(tmp_path / "c", "model")
    program, loaded, _ = load_compiled_text(tmp_path / "c")
    source = load_text(str(tmp_path / "model"))
    for text in filter(None, TEXTS):
        tokens = source.tokenizer.encode(text)
        assert loaded.encode(text) == tokens
        right = reference(tmp_path / "model").decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert model.printed(tokens).decode() == right, text
        assert loaded.decode(tokens) == source.tokenizer.decode(tokens)
    if kind.name not in ("gpt2", "unigrams"):
        return  # random tokens are no characters, which bytes to fall back to mark one by one
    tokens = source.tokenizer.encode("hello")
    generated = run_text(program, loaded, "hello", 6, "golden")["tokens"]
    line = text_flash_image(program, loaded, "hello", 6, memory_bytes=1 << 24, payload=256).text
    more = loaded.decode(generated).removeprefix(loaded.decode(tokens))
    assert line == f"celosia: model, image ok: hello{more}\r\n"


def test_ends_are_those_of_the_generation(tmp_path: Path) -> None:
    kind = DECODERS[0]
    decoder_folder(kind, tmp_path, eos_token_id=[5, 6], bos_token_id=7)
    assert load_text(str(tmp_path)).tokenizer.ends == {5, 6}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [8, 9], "bos_token_id": 3}')
    own = load_text(str(tmp_path)).tokenizer
    assert (own.ends, own.begin, own.encode("")) == ({8, 9}, 3, [3])
    assert own.encode("a") == reference(tmp_path)("a")["input_ids"]


def test_texts_of_numbers_end_as_those_of_words(tmp_path: Path) -> None:
    decoder_folder(DECODERS[0], tmp_path, eos_token_id=[5, 6], bos_token_id=7)
    for path in tmp_path.glob("*token*"):
        path.unlink()
    own = load_text(str(tmp_path)).tokenizer
    assert own.ends == {5, 6}
    assert own.decode(own.encode("5, 8 6")) == "5 8 6"
    with pytest.raises(InputError, match=r"takes token numbers from 0 to \d+, not '0{40}\.\.\.'$"):
        own.encode("0" * 5000)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": null}')
    assert load_text(str(tmp_path)).tokenizer.ends == frozenset()


@pytest.mark.parametrize("alone", [False, True])
def test_no_truncation_of_a_file_cuts_prompts(tmp_path: Path, alone: bool) -> None:
    decoder_folder(DECODERS[0], tmp_path)
    text = "the quick brown fox " * 6
    whole = reference(tmp_path)(text)["input_ids"]
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {"max_length": 8, "stride": 0, "strategy": "LongestFirst"}
    content["truncation"]["direction"] = "Right"
    path.write_text(json.dumps(content))
    if alone:
        for file in tmp_path.glob("*_*.json"):
            file.unlink()
    assert load_text(str(tmp_path)).tokenizer.encode(text) == whole
    assert len(whole) > 8


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder_folder(DECODERS[0], tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = (
        "Texts of Hugging Face folders need the package transformers of the extra text; install "
        "it with: pip install '.[text]' in a checkout, or 'FILE.whl[text]'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_text(str(tmp_path))


def test_code_of_a_folder_never_runs(tmp_path: Path) -> None:
    encoder_folder(ENCODERS[0], tmp_path / "model")
    mark = tmp_path / "mark"
    (tmp_path / "model" / "own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass\n")
    path = tmp_path / "model" / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"tokenizer_class": "Own"}
    path.write_text(json.dumps(config | {"auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}))
    # As transformers without trust in the folder: the class of the model's kind.
    source = load_source(str(tmp_path / "model"))
    assert source.encode("hello").tolist() == reference(tmp_path / "model")("hello")["input_ids"]
    assert not mark.exists()


def test_tokens_that_the_model_lacks_are_refused(tmp_path: Path) -> None:
    decoder_folder(DECODERS[-1], tmp_path / "model")
    decoder_folder(DECODERS[0], tmp_path / "other")
    tokenizer = tmp_path / "other" / "tokenizer.json"
    sized = json.loads((tmp_path / "model" / "config.json").read_text())["vocab_size"]
    program = library.compile(library.load(tmp_path / "model", tokenizer=tokenizer))
    with pytest.raises(ValueError, match=r"^A text has the token ") as refused:
        next(program.generate("שלום"))
    assert str(refused.value).endswith(
        f"but model model has {sized}; give the tokenizer that it was trained with"
    )


def test_pairs_of_graphs_without_types_are_refused(tmp_path: Path) -> None:
    encoder_folder(ENCODERS[0], tmp_path / "model")
    source = replace(load_source(str(tmp_path / "model")), types=None)
    with pytest.raises(ValueError, match="The tokens of a pair are of two types, but model model"):
        source.encode("a\tb")
    assert source.encode("a").ndim == 1


@pytest.mark.parametrize("value", ["12", 0, -5, float("nan"), True, [512]])
def test_longest_texts_are_positive_numbers(tmp_path: Path, value: object) -> None:
    encoder_folder(ENCODERS[0], tmp_path / "model")
    path = tmp_path / "model" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": value}))
    message = (
        f"Setting 'model_max_length' in {path} must be a positive number or null, not {value!r}"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_source(str(tmp_path / "model"))
