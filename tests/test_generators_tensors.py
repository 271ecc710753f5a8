"""Tensors of folders: each is used, known to be without effect, or refused by its name."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.quantize.options import Quantization
from tests.test_generators_hugging_face_text import LLAMA, llama_tensors, write_folder
from tools import folder_edits as edits

BASES = json.loads((edits.DATA / "bases.json").read_text(encoding="utf-8"))


def refused(folder: Path, name: str, tensors: dict, settings: dict, message: str) -> None:
    """Check the sentence for a base with other tensors, None for those that lack, and settings."""
    base = BASES[name]
    some = edits.tensors_of(base["shapes"]) | tensors
    kept = {key: tensor for key, tensor in some.items() if tensor is not None}
    edits.write(folder, base["config"] | settings, kept)
    load = load_text if "CausalLM" in name or "Generation" in name else load_source
    with pytest.raises(InputError, match=f"^{re.escape(message.format(folder))}$"):
        load(str(folder))


ELECTRA, ALBERT = "electra.embeddings", "albert.embeddings"
PLAIN = "encoder.layer.0.attention.output.dense"
DENSE = f"bert.{PLAIN}"


@pytest.mark.parametrize(
    ("name", "tensors", "settings", "message"),
    [
        ("GemmaForCausalLM", {}, {"tie_word_embeddings": False},
         "Weight 'lm_head.weight' is missing in {0}/model.safetensors, and setting "
         "'tie_word_embeddings' in {0}/config.json is false"),
        ("OPTForCausalLM", {}, {"word_embed_proj_dim": 16},
         "Setting 'word_embed_proj_dim' in {0}/config.json must be 24"),
        ("PegasusForConditionalGeneration", {}, {"tie_word_embeddings": False},
         "Weight 'lm_head.weight' is missing in {0}/model.safetensors, and setting "
         "'tie_word_embeddings' in {0}/config.json is false"),
        ("BertForMaskedLM", {}, {"tie_word_embeddings": False},
         "Weight 'cls.predictions.decoder.weight' is missing in {0}/model.safetensors, and "
         "'tie_word_embeddings' is false"),
        ("BertForMaskedLM", {"cls.predictions.decoder.weight": np.zeros((13, 24))},
         {"tie_word_embeddings": False},
         "Weight 'cls.predictions.decoder.bias' is missing in {0}/model.safetensors, and "
         "'tie_word_embeddings' is false"),
        ("BertForMaskedLM", {"cls.predictions.decoder.weight": np.zeros((12, 24))}, {},
         "Weight 'cls.predictions.decoder.weight' must have the shape [13, 24], not [12, 24] in "
         "{0}/model.safetensors"),
        ("BertForMaskedLM", {"cls.predictions.transform.dense.weight": None}, {},
         "Weights {0}/model.safetensors lack the head of BertForMaskedLM: none of cls.predictions, "
         "lm_head, vocab_projector, predictions, generator_lm_head is there"),
        ("BertForMaskedLM", {"embeddings.word_embeddings.weight": np.zeros((13, 24))}, {},
         "Weights {0}/model.safetensors hold the tensor 'embeddings.word_embeddings.weight' twice"),
        ("BertForSequenceClassification", {"classifier.weight": np.zeros((5, 24)),
                                           "classifier.bias": np.zeros(5)}, {},
         "Setting 'id2label' in {0}/config.json must have 5 names, one for each "
         "output in {0}/model.safetensors, not 3"),
        ("ViTForImageClassification", {}, {"id2label": {}},
         "Setting 'id2label' in {0}/config.json must have 3 names, one for each "
         "output in {0}/model.safetensors, not 0"),
        ("ViTForImageClassification", {}, {"num_labels": 0},
         "Setting 'num_labels' in {0}/config.json must be 3, the outputs in "
         "{0}/model.safetensors, not 0"),
        ("ASTForAudioClassification", {}, {"num_labels": 2, "id2label": None},
         "Setting 'num_labels' in {0}/config.json must be 3, the outputs in "
         "{0}/model.safetensors, not 2"),
        ("BertForSequenceClassification", {}, {"max_position_embeddings": 30},
         "Setting 'max_position_embeddings' in {0}/config.json must be 24, not 30, by the weight "
         "'embeddings.position_embeddings.weight'"),
        ("ElectraForSequenceClassification", {f"{ELECTRA}.LayerNorm.bias": None}, {},
         "Weight 'embedding_norm.bias' must be there, with 16 columns, in {0}/model.safetensors"),
        ("BertForMaskedLM", {f"{DENSE}.weight": np.zeros((24, 24), np.int8)}, {},
         f"Weight '{PLAIN}.weight' is stored as int8, without scales of its rows in "
         f"'{PLAIN}.weight_scale'; save the model in float32 in {{0}}/model.safetensors"),
        ("BertForMaskedLM", {f"{DENSE}.weight_scale": np.ones((24, 1), np.float32)}, {},
         "Weights {0}/model.safetensors hold tensors that a model of type bert does not have: "
         f"{PLAIN}.weight_scale"),
        ("AlbertForMaskedLM", {f"{ALBERT}.word_embeddings.weight": np.zeros(13)}, {},
         "Weight 'words' in {0}/model.safetensors must be a matrix"),
        ("ViTForImageClassification", {"vit.embeddings.cls_token": np.zeros((2, 24))}, {},
         "Weight 'embeddings.cls_token' in {0}/model.safetensors must be one vector, not 2"),
        ("ViTForImageClassification", {"vit.embeddings.cls_token": np.zeros((1, 23))}, {},
         "Weight 'embeddings.cls_token' in {0}/model.safetensors must have 24 columns, not "
         "[1, 23]"),
        ("ViTForImageClassification", {}, {"image_size": 16777216},
         "Settings in {0}/config.json make an input or its patches of 844424930131968 numbers, of "
         "at most 67108864"),
        ("Dinov2ForImageClassification", {}, {"use_swiglu_ffn": True},
         "Setting 'use_swiglu_ffn' in {0}/config.json must be False, not True; a gated MLP is not "
         "known in an encoder"),
        ("ASTForAudioClassification", {}, {"max_length": 16777216, "num_mel_bins": 16777216},
         "Settings in {0}/config.json make an input or its patches of 422212389568515 numbers, of "
         "at most 67108864"),
        ("PegasusForConditionalGeneration",
         {"model.encoder.embed_positions.weight": None}, {"max_position_embeddings": 16777216},
         "Setting 'max_position_embeddings' in {0}/config.json must be at most 11184810 where the "
         "file has no positions, not 16777216"),
        ("Phi3ForCausalLM", {}, {"rope_parameters": {"partial_rotary_factor": 0.4}},
         "Setting 'partial_rotary_factor' in {0}/config.json must rotate an even number of a "
         "head's 8 columns, not 3"),
        ("Phi3ForCausalLM", {}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
         "Setting 'rope_type' in {0}/config.json must be default or longrope for a model of type "
         "phi3, not 'linear'"),
        ("LlamaForCausalLM", {},
         {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}},
         "Setting 'short_factor' in {0}/config.json must have 4 numbers, not 1"),
        ("LlamaForCausalLM", {}, {"rope_scaling": {"rope_type": "linear"}},
         "Setting 'factor' in {0}/config.json must be a number, not None"),
        ("LlamaForCausalLM", {}, {"rope_scaling": {"rope_type": "yarn"}},
         "Setting 'factor' in {0}/config.json must be a number, not None"),
        ("LlamaForCausalLM", {}, {"rope_scaling": {
            "rope_type": "llama3", "factor": 2.0, "low_freq_factor": 2.0, "high_freq_factor": 2.0}},
         "Setting 'high_freq_factor' in {0}/config.json must be more than 'low_freq_factor', but "
         "they are 2 and 2"),
    ],
)  # fmt: skip
def test_what_is_missing_or_too_much(
    tmp_path: Path, name: str, tensors: dict, settings: dict, message: str
) -> None:
    refused(tmp_path, name, tensors, settings, message)


def test_a_bounded_model_has_no_more_places(tmp_path: Path) -> None:
    write_folder(tmp_path, {**LLAMA, "model_type": "mistral", "sliding_window": 7}, llama_tensors())
    message = (
        f"Model {tmp_path.name} has at most 7 places, as from there on its layers attend to a "
        "window or its positions are others, not 8"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_text(str(tmp_path)).quantize(Quantization(places=8, texts=1, length=4))


def test_classes_of_images_have_names(tmp_path: Path) -> None:
    base, names = BASES["ViTForImageClassification"], {"0": "cat", "1": "dog", "2": "fox"}
    edits.write(tmp_path, base["config"] | {"id2label": names}, edits.tensors_of(base["shapes"]))
    assert load_source(str(tmp_path)).labels == ("cat", "dog", "fox")
