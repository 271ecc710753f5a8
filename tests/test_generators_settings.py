"""Settings of config.json: defaults of classes, types, ranges, and refusals."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.hugging_face_folder import Folder
from celosia.generators.frontend.hugging_face_text import load_hugging_face_text
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.reference.floats import forward
from tests.test_generators_hugging_face_text import LLAMA, llama_tensors, write_folder

SIZE = "an integer from 1 to 16777216"
BERT = {
    "model_type": "bert", "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3,
    "intermediate_size": 20, "vocab_size": 6,
}  # fmt: skip
STORED = {"quant_method": "compressed-tensors", "format": "int-quantized"}
VIT = {
    "model_type": "vit", "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3,
    "intermediate_size": 20, "image_size": 8, "patch_size": 4,
}  # fmt: skip


def refusal(folder: Path, config: object) -> str:
    """Return the sentence that a folder without weights is refused with."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    kind = config["model_type"]
    with pytest.raises(ValueError, match="json") as caught:
        (load_text if kind not in ("bert", "roberta", "vit") else load_source)(str(folder))
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("base", [LLAMA, BERT])
def test_half_a_character_is_no_text(tmp_path: Path, base) -> None:
    found = refusal(tmp_path, base | {"num_attention_heads": "\ud800"})
    assert re.search(r"num_attention_heads.* must be .*, not '\\ud800'", found), found


@pytest.mark.parametrize(
    ("base", "settings", "message"),
    [
        (LLAMA, {"architectures": 5}, "a list with the class of a language model, such as "
         "LlamaForCausalLM or null, not 5"),
        (LLAMA, {"architectures": ["LlamaBidirectionalModel"]}, "a list with the class of a "
         "language model, such as LlamaForCausalLM or null, not ['LlamaBidirectionalModel']"),
        (LLAMA, {"vocab_size": "9"}, f"{SIZE}, not '9'"),
        (LLAMA, {"vocab_size": 9.0}, f"{SIZE}, not 9.0"),
        (LLAMA, {"num_hidden_layers": True}, f"{SIZE}, not True"),
        (LLAMA, {"num_hidden_layers": 0}, f"{SIZE}, not 0"),
        (LLAMA, {"hidden_size": 10**400}, f"{SIZE}, not 1{'0' * 59}..."),
        (LLAMA, {"hidden_size": "x" * 58}, f"{SIZE}, not '{'x' * 58}'"),
        (LLAMA, {"rms_norm_eps": "tiny"}, "a number from 0 to 1, not 'tiny'"),
        (LLAMA, {"rms_norm_eps": None}, "a number from 0 to 1, not None"),
        (LLAMA, {"rope_theta": float("nan")}, "a number above 1 and up to 1e12, not nan"),
        (LLAMA, {"partial_rotary_factor": 1.5}, "a number from 0 to 1, not 1.5"),
        (LLAMA, {"tie_word_embeddings": "yes"}, "true or false, not 'yes'"),
        (LLAMA, {"eos_token_id": "</s>"}, "a token's number or a list of them or null, not '</s>'"),
        (LLAMA, {"eos_token_id": [2, "x"]}, "a token's number or a list of them or null, not "
         "[2, 'x']"),
        (LLAMA, {"bos_token_id": 1 << 25}, "a token's number or null, not 33554432"),
        (LLAMA, {"hidden_act": ["silu"]}, "a string, not ['silu']"),
        (LLAMA, {"original_max_position_embeddings": "x"}, f"{SIZE} or null, not 'x'"),
        (LLAMA, {"rope_scaling": []}, "settings of rotary positions or null, not []"),
        (LLAMA, {"quantization_config": {"quant_method": "gptq"}}, "that of int-quantized "
         "compressed-tensors, or left out; save the model in float32 or null, not "
         "{'quant_method': 'gptq'}"),
        (LLAMA, {"pruned_heads": {"0": [1]}}, "empty, as a model without some of its heads is not "
         "read or null, not {'0': [1]}"),
        ({**LLAMA, "model_type": "qwen2"}, {"layer_types": 5},
         "a list of full_attention and sliding_attention or null, not 5"),
        ({**LLAMA, "model_type": "granite"}, {"embedding_multiplier": "x"},
         "a number above 0 and up to 1e12, not 'x'"),
        ({**LLAMA, "model_type": "granite"}, {"embedding_multiplier": 2e12},
         "a number above 0 and up to 1e12, not 2000000000000.0"),
        ({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "vocab_size": 9}, {"hidden_size": "x"},
         f"{SIZE}, not 'x'"),
        ({"model_type": "gpt_neo", "hidden_size": 8, "vocab_size": 9, "num_layers": 1},
         {"attention_types": 3}, "a list of pairs, each a list of global and local and how often "
         "it is repeated, not 3"),
        (BERT, {"layer_norm_eps": "tiny"}, "a number from 0 to 1, not 'tiny'"),
        ({**BERT, "model_type": "roberta"}, {"pad_token_id": None}, "a token's number, not None"),
        (BERT, {"id2label": 4}, "names by numbers or null, not 4"),
        (VIT, {"num_channels": "x"}, f"{SIZE}, not 'x'"),
        (VIT, {"image_size": [8]}, "one positive integer or two, not [8]"),
        (VIT, {"patch_size": 9}, "at most 8, the shorter side of an input, not 9"),
    ],
)  # fmt: skip
def test_types_and_ranges(tmp_path: Path, base: dict, settings: dict, message: str) -> None:
    name = next(iter(settings))
    wanted = f"Setting {name!r} in config.json must be {message}"
    assert refusal(tmp_path, {**base, **settings}) == wanted


@pytest.mark.parametrize("name", ["kv_cache_scheme", "transform_config", "sparsity_config"])
def test_stored_weights_with_more_than_scales(tmp_path: Path, name: str) -> None:
    settings = STORED | {name: {"format": 8}}
    assert refusal(tmp_path, {**LLAMA, "quantization_config": settings}) == (
        f"Setting 'quantization_config.{name}' in config.json must be empty, as only quantized "
        "weights are read; save the model in float32 or null, not {'format': 8}"
    )
    other = {**LLAMA, "quantization_config": STORED | {"rotations": 1}}
    assert refusal(tmp_path, other) == (
        "Setting 'quantization_config.rotations' in config.json is not known; if no output of the "
        "model depends on it, take it out of the file"
    )
    for empty in (None, {}):
        (tmp_path / "config.json").unlink()
        write_folder(
            tmp_path, {**LLAMA, "quantization_config": STORED | {name: empty}}, llama_tensors()
        )
        load_text(str(tmp_path))


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ({"short_factor": 3}, "a list of numbers above 0 and up to 1e12, not 3"),
        ({"beta_fast": "x"}, "a number from 0 to 1e6 or null, not 'x'"),
        ({"factor": 0.5}, "a number from 1 to 1e6 or null, not 0.5"),
        ({"truncate": 1}, "true or false, not 1"),
    ],
)
def test_types_and_ranges_of_rotary_settings(tmp_path: Path, inside: dict, message: str) -> None:
    rope = {"rope_type": "yarn", **inside}
    name = f"rope_scaling.{next(iter(inside))}"
    wanted = f"Setting {name!r} in config.json must be {message}"
    assert refusal(tmp_path, {**LLAMA, "rope_scaling": rope}) == wanted


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**LLAMA, "rope_scaling": {"rope_type": "yarn", "betas": 3}},
         "Setting 'rope_scaling.betas' in config.json is not known; if no output of the model "
         "depends on it, take it out of the file"),
        ({**LLAMA, "logit_cap": 3, "alibi": True},
         "Settings in config.json that a model of type llama does not have: 'alibi', 'logit_cap'; "
         "if no output of the model depends on them, take them out of the file"),
        ({**LLAMA, "model_type": "gpt_neox"},
         "Setting 'use_parallel_residual' in config.json must be False, not True, which it is "
         "where it is left out: attention and MLP stand side by side; Llama, GPT-2 and their kin "
         "have one behind other; and Settings in config.json that a model of type gpt_neox does "
         "not have: 'num_key_value_heads', 'rms_norm_eps'; if no output of the model depends on "
         "them, take them out of the file"),
        ({**LLAMA, "model_type": "smollm3", "no_rope_layer_interval": 1},
         "Setting 'no_rope_layers' in config.json must have 2 layers and a 1 for at least one of "
         "them; without it every layer with a number divisible by 'no_rope_layer_interval', which "
         "is 1, has none"),
        ({**LLAMA, "model_type": "smollm3", "no_rope_layers": [1]},
         "Setting 'no_rope_layers' in config.json must have 2 layers and a 1 for at least one of "
         "them; without it every layer with a number divisible by 'no_rope_layer_interval', which "
         "is 4, has none"),
        ({**BERT, "model_type": "gpt2", "n_embd": 12, "hidden_size": 16, "n_layer": 1},
         "Settings 'hidden_size' and 'n_embd' in config.json mean the same and must be equal, but "
         "are 16 and 12"),
        ({key: value for key, value in LLAMA.items() if key != "hidden_size"},
         "Configuration config.json must give the integer 'hidden_size'"),
        ({**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0},
          "partial_rotary_factor": 0.5},
         "Setting 'partial_rotary_factor' in config.json must be 1 for a model of type llama, "
         "not 0.5"),
        ({**LLAMA, "model_type": "qwen2", "layer_types": ["full_attention"]},
         "Setting 'layer_types' in config.json must have 2 layers, not 1"),
        ({**LLAMA, "model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]},
         "Setting 'sliding_window' in config.json must be given and in use where 'layer_types' has "
         "layers with a window"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(tmp_path: Path, config: dict, message: str) -> None:
    assert refusal(tmp_path, config) == message


@pytest.mark.parametrize("beside", ["generation_config.json", "special_tokens_map.json"])
def test_files_beside_that_are_broken(tmp_path: Path, beside: str) -> None:
    (tmp_path / beside).write_text("[]", encoding="utf-8")
    assert refusal(tmp_path, LLAMA) == f"File {beside} must hold a JSON object"


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("gpt_neox", "use_parallel_residual", True),
        ("gpt_neox", "rotary_pct", 0.25),
        ("stablelm", "partial_rotary_factor", 0.25),
        ("smollm3", "rope_theta", 2e6),
        ("granite", "attention_multiplier", 1.0),
        ("llama", "rms_norm_eps", 1e-6),
        ("phi3", "rms_norm_eps", 1e-5),
        ("roberta", "layer_norm_eps", 1e-12),
        ("mistral", "sliding_window", 4096),
        ("gemma", "head_dim", 256),
        ("gpt_neo", "window_size", 256),
    ],
)
def test_classes_have_defaults_of_their_own(
    tmp_path: Path, kind: str, name: str, value: object
) -> None:
    sizes = {"hidden_size": 8, "vocab_size": 9, "intermediate_size": 8}
    layers = {"num_layers" if kind == "gpt_neo" else "num_hidden_layers": 1}
    content = json.dumps({"model_type": kind, **sizes, **layers})
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    assert Folder(tmp_path).config[name] == value


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "mistral", "sliding_window": 7},
        {"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 2], "long_factor": [2, 3],
                          "original_max_position_embeddings": 7}},
    ],
)  # fmt: skip
def test_a_text_is_not_longer_than_what_is_computed(tmp_path: Path, settings: dict) -> None:
    write_folder(tmp_path, {**LLAMA, **settings}, llama_tensors())
    model, weights = load_hugging_face_text(tmp_path)
    assert (model.positions, model.bounded) == (7, True)
    forward(model, weights, np.zeros((1, 7), int))
    message = f"Model {tmp_path.name} takes at most 7 tokens, not 8"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        forward(model, weights, np.zeros((1, 8), int))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("eos_token_id", "5", "a token's number or a list of them or null, not '5'"),
        ("eos_token_id", [True], "a token's number or a list of them or null, not [True]"),
        ("bos_token_id", 5.5, "a token's number or null, not 5.5"),
        ("decoder_start_token_id", [5], "a token's number or null, not [5]"),
    ],
)
def test_tokens_of_the_generation_are_numbers(tmp_path: Path, name, value, words) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({name: value}))
    wanted = f"Setting {name!r} in generation_config.json must be {words}"
    assert refusal(tmp_path, LLAMA) == wanted
