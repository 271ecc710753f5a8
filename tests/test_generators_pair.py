"""Encoder-decoders: against transformers' numbers, integers against floats, and refusals."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import celosia as library
from celosia.generators.frontend.hugging_face_pair import load_hugging_face_pair
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import random_weights
from celosia.generators.frontend.text_sources import TextSource, is_text, load_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.texts import sample_texts
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.generators.studies.inspection import inspect

PAIRS = Path(__file__).parent / "data" / "pairs"
MODEL = TextDescription(
    name="pair",
    vocabulary=17,
    positions=9,
    dim=16,
    layers=2,
    heads=4,
    kv_heads=2,
    ffn=20,
    norm="layernorm",
    position="learned",
    gated=False,
    activation="gelu",
    bias=True,
    source_layers=1,
    source_positions=7,
    start=3,
)
SOURCES = [[1, 5, 16], [2], [4, 4, 9, 0, 11, 12, 3]]


def random_pair(**changes):
    model = MODEL.replace(**changes)
    return model, random_weights(model)


@pytest.mark.parametrize("name", ["blenderbot", "pegasus"])
def test_floats_are_those_of_transformers(name, tmp_path):
    assert is_text(str(PAIRS / name))
    with np.load(PAIRS / f"{name}.npz") as sample:
        source, tokens, wanted = (sample[part] for part in ("source", "tokens", "logits"))
    folders = [PAIRS / name]
    if name == "pegasus":
        # Its positions are computed where a file lacks them.
        shutil.copytree(PAIRS / name, tmp_path / name)
        tensors = load_file(tmp_path / name / "model.safetensors")
        kept = {key: value for key, value in tensors.items() if "embed_positions" not in key}
        assert len(kept) == len(tensors) - 2
        save_file(kept, tmp_path / name / "model.safetensors")
        folders.append(tmp_path / name)
    for folder in folders:
        model, weights = load_hugging_face_pair(folder)
        assert (model.start, model.tied) == (3, name == "pegasus")
        cache = KvCache()
        forward(model, weights, source, cache, source=True)
        steps = [forward(model, weights, tokens[:, [i]], cache)["logits"] for i in range(4)]
        assert np.abs(np.concatenate(steps, axis=1) - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["blenderbot", "pegasus"])
def test_a_bias_of_scores_is_added_by_the_machine(name, tmp_path):
    with np.load(PAIRS / f"{name}.npz") as sample:
        source, tokens, wanted = (sample[part] for part in ("source", "tokens", "logits"))
    shutil.copytree(PAIRS / name, tmp_path / name)
    tensors = load_file(tmp_path / name / "model.safetensors")
    bias = np.random.default_rng(1).normal(0, 3, (1, wanted.shape[-1])).astype(np.float32)
    save_file(tensors | {"final_logits_bias": bias}, tmp_path / name / "model.safetensors")
    model = library.load(tmp_path / name)
    cache = KvCache()
    forward(model.source.description, model.source.weights, source, cache, source=True)
    logits = forward(model.source.description, model.source.weights, tokens, cache)["logits"]
    assert np.abs(logits - (wanted + bias)).max() < 1e-5 * np.abs(wanted + bias).max()
    run = library.compile(model).run(source)
    assert run.mismatches == 0
    for scores, exact in zip(run.outputs, model.floats(source), strict=True):
        assert np.corrcoef(np.ravel(scores), exact[-1])[0, 1] > 0.99


@pytest.mark.parametrize(
    ("config", "generation", "start"),
    [
        ({}, {"decoder_start_token_id": 7}, 7),
        ({}, {"bos_token_id": 5}, 5),
        ({}, {"eos_token_id": 6}, 3),
        ({"decoder_start_token_id": None}, None, 1),
        ({"decoder_start_token_id": None}, {"decoder_start_token_id": 7, "bos_token_id": 5}, 7),
    ],
)
def test_answers_begin_as_transformers_generates_them(
    tmp_path, config: dict, generation: dict | None, start: int
) -> None:
    path = tmp_path / "blenderbot"
    shutil.copytree(PAIRS / "blenderbot", path)
    settings = json.loads((path / "config.json").read_text()) | config
    (path / "config.json").write_text(json.dumps(settings))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    assert load_hugging_face_pair(path)[0].start == start


def test_sources_have_tokens_of_their_own(tmp_path):
    name = "blenderbot"
    shutil.copytree(PAIRS / name, tmp_path / name)
    with np.load(PAIRS / f"{name}.npz") as sample:
        source, tokens = sample["source"], sample["tokens"]
    tensors = load_file(tmp_path / name / "model.safetensors")
    words = tensors["model.shared.weight"]
    own = np.random.default_rng(5).normal(0, 0.5, words.shape).astype(np.float32)
    both = {"model.encoder.embed_tokens.weight": own, "lm_head.weight": words}
    save_file(tensors | both, tmp_path / name / "model.safetensors")
    config = json.loads((tmp_path / name / "config.json").read_text())
    untied = json.dumps(config | {"tie_word_embeddings": False})
    (tmp_path / name / "config.json").write_text(untied)
    model = library.load(tmp_path / name)
    assert model.source.description.source_words
    cache = KvCache()
    forward(model.source.description, model.source.weights, source, cache, source=True)
    logits = forward(model.source.description, model.source.weights, tokens, cache)["logits"]
    wanted = np.load(PAIRS / "own_words.npy")  # of transformers
    assert np.abs(logits - wanted).max() < 1e-4 * np.abs(wanted).max()
    for changes in ({}, {"weight_depth": 2}):
        run = library.compile(model, library.config("story", **changes)).run(source)
        assert run.mismatches == 0
        for scores, exact in zip(run.outputs, model.floats(source), strict=True):
            assert np.corrcoef(np.ravel(scores), exact[-1])[0, 1] > 0.99


def test_integers_at_once_and_by_token_are_near_floats():
    model, weights = random_pair()
    source = TextSource(model, weights, None)
    decoder, apart = source.calibrate(SOURCES)
    assert apart.cosine > 0.995
    assert decoder.weight_bytes == sum(
        np.size(value)
        for name, value in weights.items()
        if np.ndim(value) == 2 and "positions" not in name
    )
    for query in SOURCES:
        tokens, logits = [3, 8, 1, 16, 2], []
        for parts in ([tokens], [[token] for token in tokens]):
            cache = KvCache()
            kept = evaluate(decoder.source, query, cache)
            logits.append(np.concatenate([evaluate(decoder, p, cache)["logits"] for p in parts]))
            assert len(kept["source.final"]) == len(query)
        assert np.array_equal(*logits)
        exact = KvCache()
        forward(model, weights, [query], exact, source=True)
        wanted = forward(model, weights, [tokens], exact)["logits"][0]
        assert np.corrcoef(wanted.ravel(), logits[0].ravel())[0, 1] > 0.99


def test_every_source_counts():
    """Another last token of a source changes all logits; tokens of an earlier source do not."""
    model, weights = random_pair()
    decoder, _ = TextSource(model, weights, None).calibrate(SOURCES)
    cache, logits = KvCache(), []
    for source in ([1, 5, 16], [1, 5, 4], [1, 5, 16]):
        cache.length = 0
        cache.kept = {name: rows for name, rows in cache.kept.items() if ".cross." in name}
        evaluate(decoder.source, source, cache)
        logits.append(evaluate(decoder, [3, 8], cache)["logits"])
    assert np.array_equal(logits[0], logits[2])
    assert np.count_nonzero(logits[0] - logits[1]) > 0.9 * logits[0].size


def test_parts_have_all_numbers():
    for changes in ({}, {"gated": True, "norm": "rmsnorm", "tied": False}):
        model, weights = random_pair(**changes)
        report = inspect(TextSource(model, weights, None))
        assert report["kind"] == "encoder-decoder"
        assert report["parameters"] == sum(np.size(value) for value in weights.values())
        assert len({part["part"] for part in report["parts"]}) == len(report["parts"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source_layers": 0},
            "Model fields source_layers and source_positions must both be positive or both 0, but "
            "source_layers is 0 and source_positions is 7",
        ),
        (
            {"position": "rotary"},
            "Model field position must be learned where source_layers is 1, not rotary",
        ),
        ({"start": 17}, "Model field start must be less than vocabulary, not 17"),
        (
            {"source_layers": 0, "source_positions": 0},
            "Model field start must be 0 without a source, not 3",
        ),
        ({"source_layers": -1}, "Model field source_layers must not be negative, not -1"),
    ],
)
def test_descriptions_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MODEL.replace(**changes)


def test_refusals():
    model, weights = random_pair()
    source = TextSource(model, weights, None)
    decoder, _ = source.calibrate(SOURCES)
    alone = MODEL.replace(source_layers=0, source_positions=0, start=0)
    for make, message in (
        (lambda: evaluate(decoder, [3]), "Tensor layers.0.cross.key needs a source, which has not "
         "been encoded"),
        (lambda: forward(model, weights, [[1] * 8], KvCache(), source=True),
         "Model pair takes sources of 1 to 7 tokens, not 8"),
        (lambda: evaluate(decoder.source, []), "Model pair takes sources of 1 to 7 tokens, not 0"),
        (lambda: forward(alone, weights, [[1]], source=True), "Model pair takes no source"),
        (lambda: source.calibrate(SOURCES, Quantization(kv_bits=4)),
         "Bits of keys and values must be 8 where source_layers is not 0, not 4"),
        (lambda: sample_texts(model, weights, None, sources=[], length=2, seed=1),
         "Calibration needs at least one source"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            make()


def test_folders_that_are_refused(tmp_path):
    config = json.loads((PAIRS / "pegasus" / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(PAIRS / "pegasus" / "model.safetensors")
    bias, extra = tensors["final_logits_bias"] + 1, "model.encoder.extra.weight"
    half = {"encoder_ffn_dim": 10}
    part = "model.decoder.layers.0.encoder_attn.k_proj.weight"
    lacks = {key: value for key, value in tensors.items() if key != part}
    for count, (settings, weights, message) in enumerate(
        (
            (half, {}, "Setting 'encoder_ffn_dim' in {0}/config.json must be 20, not 10: it is "
             "that of decoder_ffn_dim"),
            ({"decoder_start_token_id": None}, {}, "Model field start must be an integer, not "
             "None in {0}/config.json"),
            ({}, {**tensors, "final_logits_bias": bias[:, 1:]}, "Weight 'head.bias' must have "
             "the shape [19], not [18] in {0}/model.safetensors"),
            ({}, {**tensors, extra: bias}, "Weights {0}/model.safetensors hold tensors that a "
             "model of type pegasus does not have: encoder.extra.weight"),
            ({}, {**tensors, "model.decoder.embed_tokens.weight": bias}, "Weight "
             "'decoder.embed_tokens.weight' in {0}/model.safetensors is another vocabulary than "
             "'shared.weight', though setting 'tie_word_embeddings' is true; set it to false if "
             "the model has both"),
            ({}, lacks, "Weight 'layers.0.cross.key.weight' is missing in "
             "{0}/model.safetensors"),
        )
    ):  # fmt: skip
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config | settings), encoding="utf-8")
        save_file(weights or tensors, folder / "model.safetensors")
        with pytest.raises(ValueError, match=f"^{re.escape(message.format(folder))}$"):
            load_text(str(folder))
