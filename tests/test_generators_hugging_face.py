"""Folders of Hugging Face's form: read, or refused."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from celosia.generators.frontend.hugging_face import load_hugging_face
from celosia.generators.frontend.hugging_face_folder import ACTIVATIONS
from celosia.generators.frontend.hugging_face_pair import PAIR_FAMILIES
from celosia.generators.frontend.hugging_face_text import TEXT_FAMILIES
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.weights import read_tensors
from celosia.generators.reference.floats import forward

CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 12,
    "intermediate_size": 20,
    "layer_norm_eps": 1e-6,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "vocab_size": 6,
}
LAYER = {
    "attention.self.query": (12, 12),
    "attention.self.key": (12, 12),
    "attention.self.value": (12, 12),
    "attention.output.dense": (12, 12),
    "attention.output.LayerNorm": (12,),
    "intermediate.dense": (20, 12),
    "output.dense": (12, 20),
    "output.LayerNorm": (12,),
}
LANGUAGE = ", ".join([*TEXT_FAMILIES, *PAIR_FAMILIES])
KNOWN = ", ".join(ACTIVATIONS)


def bert_tensors(prefix: str = "") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (6, 12),
        "embeddings.position_embeddings.weight": (9, 12),
        "embeddings.token_type_embeddings.weight": (2, 12),
        "embeddings.LayerNorm.weight": (12,),
        "embeddings.LayerNorm.bias": (12,),
        "pooler.dense.weight": (12, 12),
    }
    for layer in range(2):
        for name, shape in LAYER.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
    tensors = {prefix + name: rng.normal(0, 0.5, shape) for name, shape in shapes.items()}
    tensors[f"{prefix}embeddings.position_ids"] = np.arange(9)[None]
    return tensors


def write_folder(folder, config=CONFIG, tensors=None, modules=None, pooling=None) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    save_file(bert_tensors() if tensors is None else tensors, folder / "model.safetensors")
    if modules is not None:
        (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def modules(*kinds: str) -> list[dict[str, str]]:
    places = {"Transformer": "", "Pooling": "1_Pooling"}
    return [{"type": f"x.models.{kind}", "path": places.get(kind, "2")} for kind in kinds]


def refused(message, call, *arguments) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(*arguments)


def test_every_tensor_finds_its_place(tmp_path) -> None:
    write_folder(
        tmp_path,
        modules=modules("Transformer", "Pooling", "Normalize"),
        pooling={"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False},
    )
    source = load_hugging_face(tmp_path, tokens=7)
    model, weights = source.description, source.weights
    assert (model.tokens, model.dim, model.layers, model.heads, model.ffn) == (7, 12, 2, 3, 20)
    assert (model.vocabulary, model.types, model.epsilon) == (6, 2, 1e-6)
    assert (model.placement, model.pooling, model.unit) == ("post", "mean", True)
    tensors = bert_tensors()
    for ours, theirs in {
        "words": "embeddings.word_embeddings.weight",
        "layers.1.key.bias": "encoder.layer.1.attention.self.key.bias",
        "layers.0.output.weight": "encoder.layer.0.attention.output.dense.weight",
        "layers.1.attention_norm.weight": "encoder.layer.1.attention.output.LayerNorm.weight",
        "layers.1.up.weight": "encoder.layer.1.intermediate.dense.weight",
        "layers.1.down.weight": "encoder.layer.1.output.dense.weight",
        "layers.1.mlp_norm.bias": "encoder.layer.1.output.LayerNorm.bias",
        "embedding_norm.bias": "embeddings.LayerNorm.bias",
    }.items():
        np.testing.assert_array_equal(weights[ours], tensors[theirs])
    positions = tensors["embeddings.position_embeddings.weight"][:7]
    np.testing.assert_array_equal(weights["positions"], positions)
    output = forward(model, weights, np.array([[1, 4, 2]]))["output"]
    np.testing.assert_allclose(np.linalg.norm(output), 1)


def test_folders_of_other_families(tmp_path) -> None:
    write_folder(tmp_path, {**CONFIG, "model_type": "roberta"}, tensors=bert_tensors("roberta."))
    source = load_hugging_face(tmp_path)
    model, weights = source.description, source.weights
    assert (model.tokens, model.pooling, model.unit) == (7, "none", False)
    positions = bert_tensors()["embeddings.position_embeddings.weight"][2:]
    np.testing.assert_array_equal(weights["positions"], positions)

    names = {
        "encoder.layer": "transformer.layer",
        "attention.self.query": "attention.q_lin",
        "attention.self.key": "attention.k_lin",
        "attention.self.value": "attention.v_lin",
        "attention.output.dense": "attention.out_lin",
        "attention.output.LayerNorm": "sa_layer_norm",
        "intermediate.dense": "ffn.lin1",
        "output.dense": "ffn.lin2",
        "output.LayerNorm": "output_layer_norm",
    }
    tensors = {}
    for name, tensor in bert_tensors("distilbert.").items():
        for old, new in names.items():
            name = name.replace(old, new)
        if "token_type" not in name:
            tensors[name] = tensor
    config = {
        "model_type": "distilbert",
        "activation": "relu",
        "dim": 12,
        "n_layers": 2,
        "n_heads": 3,
        "hidden_dim": 20,
        "vocab_size": 6,
    }
    write_folder(
        tmp_path,
        config,
        tensors,
        modules("Transformer", "Pooling"),
        {"pooling_mode_cls_token": True},
    )
    source = load_hugging_face(tmp_path)
    model, weights = source.description, source.weights
    assert (model.tokens, model.types, model.activation) == (9, 0, "relu")
    assert (model.pooling, model.unit) == ("class", False)
    gains = bert_tensors()["encoder.layer.1.output.LayerNorm.weight"]
    np.testing.assert_array_equal(weights["layers.1.mlp_norm.weight"], gains)
    assert forward(model, weights, np.array([[1, 4, 2]]))["output"].shape == (1, 1, 12)


def classifier_tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    tensors = bert_tensors("bert.")
    tensors["bert.pooler.dense.bias"] = rng.normal(0, 0.5, 12)
    tensors["classifier.weight"] = rng.normal(0, 0.5, (3, 12))
    tensors["classifier.bias"] = rng.normal(0, 0.5, 3)
    return tensors


def test_a_classifier_gives_its_logits(tmp_path) -> None:
    names = {"0": "cat", "1": "dog", "2": "fox"}
    config = CONFIG | {"architectures": ["BertForSequenceClassification"], "id2label": names}
    tensors = classifier_tensors()
    write_folder(tmp_path, config, tensors)
    source = load_source(str(tmp_path))
    assert (source.labels, source.unused) == (("cat", "dog", "fox"), ())
    ids = np.array([1, 4, 2])
    rows = forward(
        source.description.replace(classes=0, head_hidden=0, pooling="none"),
        source.weights,
        ids[None],
    )["output"][0]
    pooled = np.tanh(
        tensors["bert.pooler.dense.weight"] @ rows[0] + tensors["bert.pooler.dense.bias"]
    )
    logits = tensors["classifier.weight"] @ pooled + tensors["classifier.bias"]
    np.testing.assert_allclose(source.floats(ids)[0], logits)


def test_heads_are_used_or_named(tmp_path) -> None:
    tensors = classifier_tensors() | {"cls.embeddings.position_ids": np.arange(3)}
    write_folder(tmp_path, CONFIG | {"architectures": ["BertModel"]}, tensors)
    names = ("bert.pooler.dense", "classifier")
    unused = [
        f"{name.removeprefix('bert.')}.{part}" for name in names for part in ("bias", "weight")
    ]
    unused.append("cls.embeddings.position_ids")
    assert load_source(str(tmp_path)).unused == tuple(sorted(unused))
    write_folder(tmp_path, CONFIG, classifier_tensors())
    message = (
        f"Configuration {tmp_path}/config.json must give 'architectures', as classifier.bias in "
        f"{tmp_path}/model.safetensors belongs to a head"
    )
    refused(message, load_source, str(tmp_path))
    write_folder(tmp_path, CONFIG | {"architectures": ["BertForSummary"]}, classifier_tensors())
    message = (
        f"Architecture BertForSummary in {tmp_path}/config.json is not known; known are those for "
        "SequenceClassification, TokenClassification, QuestionAnswering, MultipleChoice, "
        "NextSentencePrediction and MaskedLM, and the model alone"
    )
    refused(message, load_source, str(tmp_path))
    tensors = classifier_tensors()
    del tensors["bert.pooler.dense.weight"], tensors["bert.pooler.dense.bias"]
    write_folder(tmp_path, CONFIG | {"architectures": ["BertForSequenceClassification"]}, tensors)
    message = (
        f"Weights {tmp_path}/model.safetensors lack the classifier of "
        "BertForSequenceClassification: one of classifier, classifier.out_proj with the layer in "
        "front of it"
    )
    refused(message, load_source, str(tmp_path))


def test_weights_in_several_files_and_in_halves(tmp_path) -> None:
    write_folder(tmp_path, CONFIG, bert_tensors())
    whole = load_source(str(tmp_path))
    tensors = sorted(bert_tensors().items())
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    message = (
        f"Folder {tmp_path} holds pytorch_model.bin, which may run code when it is read; load it "
        "with transformers and save it with save_pretrained, which writes model.safetensors"
    )
    refused(message, load_source, str(tmp_path))
    index = {name: f"part-{place % 2}.safetensors" for place, (name, _) in enumerate(tensors)}
    for place in range(2):
        save_file(dict(tensors[place::2]), tmp_path / f"part-{place}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    parts = load_source(str(tmp_path))
    assert parts.weights.keys() == whole.weights.keys()
    np.testing.assert_array_equal(parts.weights["words"], whole.weights["words"])
    header = json.dumps({"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    halves = np.array([1.5, -2.0, 0.25], np.float32).view(np.uint32) >> 16
    content = len(header).to_bytes(8, "little") + header + halves.astype("<u2").tobytes()
    (tmp_path / "halves.safetensors").write_bytes(content)
    values = read_tensors(tmp_path / "halves.safetensors")["a"]
    assert values.tolist() == [1.5, -2.0, 0.25]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "Model {0} is a language model of type llama; run it with: "
                                  "celosia run {0}"),
        ({"model_type": "resnet"}, "Model type 'resnet' in {0}/config.json is not one of "
         "bert, roberta, xlm-roberta, camembert, distilbert, electra, albert, vit, deit, dinov2, "
         f"clip_vision_model, audio-spectrogram-transformer, or of the language models {LANGUAGE}"),
        ({"hidden_size": None}, "Configuration {0}/config.json must give the integer "
                                "'hidden_size'"),
        ({"hidden_act": "sine"}, f"Activation 'sine' in {{0}}/config.json is not one of {KNOWN}"),
        ({"position_embedding_type": "relative_key"},
         "Configuration {0}/config.json must be that of an encoder with absolute positions"),
        ({"vocab_size": 7}, "Weight 'words' must have the shape [7, 12], not [6, 12] in "
                            "{0}/model.safetensors"),
    ],
)  # fmt: skip
def test_configurations_that_are_refused(tmp_path, changes, message) -> None:
    write_folder(tmp_path, {**CONFIG, **changes})
    refused(message.format(tmp_path), load_source, str(tmp_path))


def test_folders_that_are_refused(tmp_path) -> None:
    path = tmp_path / "config.json"
    refused(f"Cannot read {path}: No such file or directory", load_hugging_face, tmp_path)
    path.write_text("[]")
    refused(f"File {path} must hold a JSON object", load_hugging_face, tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match=rf"^File {re.escape(str(path))} is not JSON: "):
        load_hugging_face(tmp_path)
    extra = {"encoder.layer.0.adapter.weight": np.zeros(3), "gate": np.zeros(1)}
    write_folder(tmp_path, tensors=bert_tensors() | extra)
    message = (
        f"Weights {tmp_path}/model.safetensors hold tensors that a model of type bert does not "
        "have: encoder.layer.0.adapter.weight, gate"
    )
    refused(message, load_hugging_face, tmp_path)
    write_folder(tmp_path, modules=modules("Transformer", "Dense"))
    refused(
        f"Module Dense in {tmp_path}/modules.json is not supported", load_hugging_face, tmp_path
    )
    write_folder(tmp_path, modules=[{}])
    refused(f"File {tmp_path}/modules.json is not a list of modules", load_hugging_face, tmp_path)
    write_folder(
        tmp_path,
        modules=modules("Transformer", "Pooling"),
        pooling={"pooling_mode_max_tokens": True},
    )
    message = (
        f"Pooling in {tmp_path}/1_Pooling/config.json must be one of pooling_mode_mean_tokens, "
        "pooling_mode_cls_token, not pooling_mode_max_tokens"
    )
    refused(message, load_hugging_face, tmp_path)
    (tmp_path / "modules.json").unlink()
    refused("Model toy takes at most 9 tokens, not 10", load_hugging_face, tmp_path, "toy", 10)
