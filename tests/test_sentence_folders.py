"""Folders of sentence models and pairs of texts, against sentence-transformers."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.sentence_folder import read_sentence_folder
from celosia.generators.frontend.sources import load_source
from tests.support.door import ENCODERS, TEXTS, Kind, encoder_folder, reference
from tests.support.sentence_folders import (
    FOLDERS,
    PAIRS,
    RECORDED,
    SENTENCES,
    cross_encoder,
    embeddings,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
KNOWN = json.loads(RECORDED.read_text())


def embedded(folder: Path, lines: list[str]) -> list[np.ndarray]:
    source = load_source(str(folder))
    return [np.ravel(source.floats(source.prepare(source.encode(line)))) for line in lines]


@pytest.mark.parametrize("name", FOLDERS)
def test_embeddings_are_the_recorded_ones(tmp_path: Path, name: str) -> None:
    FOLDERS[name](tmp_path / "model")
    np.testing.assert_allclose(embedded(tmp_path / "model", SENTENCES), KNOWN[name], atol=1e-4)


def test_scores_of_pairs_are_the_recorded_ones(tmp_path: Path) -> None:
    cross_encoder(tmp_path / "model")
    lines = ["\t".join(pair) for pair in PAIRS]
    scores = embedded(tmp_path / "model", lines)
    np.testing.assert_allclose(scores, KNOWN["pairs"], atol=1e-4)


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None,
    reason="PyTorch, the reference, is not installed",
)
def test_the_record_is_what_sentence_transformers_gives() -> None:
    vectors = embeddings()
    assert vectors.keys() == KNOWN.keys()
    for name, rows in vectors.items():
        np.testing.assert_allclose(rows, KNOWN[name], atol=1e-5)


@pytest.mark.parametrize("kind", ENCODERS, ids=lambda kind: kind.name)
def test_pairs_are_the_tokenizers(tmp_path: Path, kind: Kind) -> None:
    folder = tmp_path / "model"
    encoder_folder(kind, folder)
    tokenizer, source = reference(folder), load_source(str(folder))
    most = min(128, tokenizer.model_max_length)
    for first, second in zip(TEXTS, reversed(TEXTS), strict=True):
        right = tokenizer(first, second, truncation=True, max_length=most)
        rows = source.encode(f"{first}\t{second}")
        types = rows[:, 1] if rows.ndim == 2 else np.zeros(len(rows))
        assert (rows[:, 0] if rows.ndim == 2 else rows).tolist() == right["input_ids"]
        assert types.tolist() == right.get("token_type_ids", [0] * len(rows))


def test_a_command_runs_pairs(celosia, tmp_path: Path) -> None:
    cross_encoder(tmp_path / "model")
    short = [PAIRS[0], PAIRS[2]]
    (tmp_path / "pairs.txt").write_text("".join("\t".join(pair) + "\n" for pair in short))
    options = (
        "--context",
        "40",
        "--config",
        "tiny",
        "--sim",
        "golden",
        "--output",
        tmp_path / "out.npy",
        "--json",
    )
    texts = ("--inputs", tmp_path / "pairs.txt", "--calibration", tmp_path / "pairs.txt")
    code, shown, errors = celosia("run", tmp_path / "model", *texts, *options)
    assert code == 0, errors
    report = json.loads(shown)
    assert (report["count"], report["cut"], report["mismatches"]) == (2, 0, 0)
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy").reshape(2, 1), KNOWN["pairs"][::2], atol=0.1
    )


def refused(folder: Path) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        read_sentence_folder(folder)
    return str(error.value)


def test_settings_that_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    FOLDERS["prompt"](folder)
    path = folder / "modules.json"
    modules = json.loads(path.read_text())
    path.write_text(json.dumps([*modules[1:], modules[0]]))
    assert refused(folder) == (
        f"Modules in {path} must be each of Transformer, Pooling, Normalize once at most, in this "
        "order, not Pooling, Transformer"
    )
    path.write_text(json.dumps(modules))
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text('{"pooling_mode": "max"}')
    assert refused(folder).endswith("not max")
    pooling.write_text('{"pooling_mode": "mean", "include_prompt": false}')
    assert refused(folder).startswith(
        f"Pooling of folder {folder} leaves out the prompt 'the passage '"
    )
    # The remedy of the sentence.
    prompts = folder / "config_sentence_transformers.json"
    prompts.write_text(json.dumps(json.loads(prompts.read_text()) | {"default_prompt_name": None}))
    assert read_sentence_folder(folder).prompt == ""
    prompts.write_text('{"default_prompt_name": "x", "prompts": {"query": "q"}}')
    assert refused(folder) == f"Prompt 'x' in {prompts} is not one of its prompts: query"
    bert = folder / "sentence_bert_config.json"
    prompts.unlink()
    bert.write_text('{"max_seq_length": "9"}')
    assert refused(folder) == f"Setting 'max_seq_length' in {bert} must be positive, not '9'"
    bert.write_text('{"do_lower_case": 1}')
    assert refused(folder) == f"Setting 'do_lower_case' in {bert} must be true or false, not 1"


def test_texts_that_no_setting_cuts_are_refused(tmp_path: Path) -> None:
    encoder_folder(ENCODERS[0], tmp_path / "model", max_position_embeddings=130)
    source = load_source(str(tmp_path / "model"))
    with pytest.raises(ValueError, match="A text has 130 tokens, but model model takes 128; make"):
        source.encode("a " * 300)
    # The remedy of the sentence.
    assert len(load_source(str(tmp_path / "model"), tokens=130).encode("a " * 300)) == 130
    FOLDERS["mean"](tmp_path / "sentences")
    with pytest.raises(ValueError, match=r"may have no tab, as it takes no pairs, not 'a.tb'"):
        load_source(str(tmp_path / "sentences")).encode("a\tb")
