"""Texts as they enter the machine and leave it, against transformers' own tokenizers."""

import importlib.util
from pathlib import Path

import pytest

from generators.sample_files import read_samples
from generators.sources import load_source
from generators.text_sources import load_text
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
