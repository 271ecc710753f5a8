"""Texts as they enter the machine and leave it, against transformers' own tokenizers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from generators.export.text_folder import load_compiled_text
from generators.frontend.pieces import REPLACEMENT
from generators.sample_files import read_samples
from generators.sources import load_source
from generators.text_sources import load_text
from tb.flash_image import text_flash_image
from tb.run_text import Pieces, run_text
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
    texts = [one for one in TEXTS if one.strip()]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    source = load_source(str(folder))
    found = read_samples(tmp_path / "texts.txt", source)
    right = [
        tokenizer(one, truncation=True, max_length=min(128, tokenizer.model_max_length))[
            "input_ids"
        ]
        for one in texts
    ]
    assert [one.tolist() for one in found] == right
    assert source.cut(texts) == sum(
        len(tokenizer(one)["input_ids"]) > len(ids) for one, ids in zip(texts, right, strict=True)
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
        pieces = Pieces(own, shown.append)
        for token in tokens:
            pieces.add([token])
            assert REPLACEMENT not in "".join(shown) or tokens in drawn
        pieces.end()
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
        "compile", tmp_path / "model", *options, "--c", "--out", tmp_path / "c"
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
    found = run_text(program, loaded, "hello", 6, "golden")["tokens"]
    line = text_flash_image(program, loaded, "hello", 6, memory_bytes=1 << 24, payload=256).text
    more = loaded.decode(found).removeprefix(loaded.decode(tokens))
    assert line == f"celosia: model, image ok: hello{more}\r\n"
