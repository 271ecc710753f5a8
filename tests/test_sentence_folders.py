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
    SCORED,
    SENTENCES,
    cross_encoder,
    embeddings,
    scored,
    scores,
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


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("name", SCORED)
def test_scores_have_the_function_of_their_cross_encoder(
    tmp_path: Path, name: str, classes: int
) -> None:
    lines = ["\t".join(pair) for pair in PAIRS]
    cross_encoder(tmp_path / "plain", classes)
    scored(tmp_path / "model", name, classes)
    plain, values = (np.array(embedded(tmp_path / each, lines)) for each in ("plain", "model"))
    sigmoid = "sigmoid" in name or (name == "usual" and classes == 1)
    np.testing.assert_allclose(values, 1 / (1 + np.exp(-plain)) if sigmoid else plain)


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None,
    reason="PyTorch, the reference, is not installed",
)
@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("name", SCORED)
def test_scores_are_those_of_sentence_transformers(tmp_path: Path, name: str, classes: int) -> None:
    scored(tmp_path / "model", name, classes)
    lines = ["\t".join(pair) for pair in PAIRS]
    values = embedded(tmp_path / "model", lines)
    np.testing.assert_allclose(values, scores(name, classes), atol=1e-5)


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


FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}


@pytest.mark.parametrize(
    ("file", "settings", "part"),
    [
        ("sentence_bert_config.json", {"config_args": {"hidden_act": "relu"}}, "'config_args' in "),
        ("sentence_bert_config.json", {"model_args": {"dtype": "bfloat16"}}, "'model_args' in "),
        ("sentence_bert_config.json", {"query_length": 7}, "'query_length' in "),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "'transformer_task' in "),
        ("sentence_bert_config.json", {"modality_config": {"text": FORWARD, "image": FORWARD}},
         "'modality_config' in "),
        ("sentence_bert_config.json", {"module_output_name": "logits"}, "'module_output_name' in "),
        ("sentence_bert_config.json", {"reverse": True}, "that are not known: 'reverse'; "),
        ("1_Pooling/config.json", {"pooling_mode_first": False}, "'pooling_mode_first'"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": 1}, "must be true or false, not 1"),
        ("1_Pooling/config.json", {"include_prompt": "no"}, "must be true or false, not 'no'"),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"},
         "must be sentence_embedding, not 'token_embeddings'"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"},
         "must be SentenceTransformer or CrossEncoder or null, not 'SparseEncoder'"),
        ("config_sentence_transformers.json", {"activation_fn": "torch.nn.modules.activation.Tanh"},
         "'activation_fn' in "),
        ("config_sentence_transformers.json", {"truncate_dim": 4}, "not known: 'truncate_dim'; "),
    ],
)  # fmt: skip
def test_settings_of_modules_are_known_or_refused(tmp_path: Path, file, settings, part) -> None:
    folder = tmp_path / "model"
    FOLDERS["of length 1"](folder)
    path = folder / file
    known = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(known | settings))
    message = refused(folder)
    assert part in message, message
    assert str(path) in message
    path.write_text(json.dumps(known))
    read_sentence_folder(folder)


def test_a_folder_of_the_newest_version_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    FOLDERS["of length 1"](folder)
    for file, settings in {
        "sentence_bert_config.json": {
            "transformer_task": "feature-extraction", "modality_config": {"text": FORWARD},
            "module_output_name": "token_embeddings", "processing_kwargs": {}, "query_length": None,
        },
        "1_Pooling/config.json": {
            "embedding_dimension": 8, "pooling_mode": "mean", "include_prompt": True,
        },
        "2_Normalize/config.json": {
            "module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding",
        },
        "config_sentence_transformers.json": {
            "__version__": {"sentence_transformers": "6.2.0"}, "default_prompt_name": None,
            "model_type": "SentenceTransformer", "prompts": {"document": "", "query": ""},
            "similarity_fn_name": "cosine",
        },
    }.items():  # fmt: skip
        (folder / file).write_text(json.dumps(settings))
    np.testing.assert_allclose(embedded(folder, SENTENCES), KNOWN["of length 1"], atol=1e-4)


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
