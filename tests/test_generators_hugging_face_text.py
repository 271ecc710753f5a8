"""Folders of Llama and GPT-2: every tensor finds its place, or one sentence refuses the folder."""

import importlib.util
import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from celosia.generators.frontend.hugging_face_folder import ACTIVATIONS
from celosia.generators.frontend.hugging_face_text import load_hugging_face_text
from celosia.generators.frontend.text_families import TEXT_FAMILIES
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.reference.floats import forward

KNOWN = ", ".join(ACTIVATIONS)
ROPE = (
    "Setting 'rope_type' in {{0}}/config.json must be one of default, linear, dynamic, llama3, "
    "yarn, longrope, not {}"
)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 20,
    "vocab_size": 9,
    "max_position_embeddings": 12,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_theta": 500.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 12,
    "n_layer": 2,
    "n_head": 3,
    "n_positions": 10,
    "n_inner": None,
    "vocab_size": 9,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="tokenizers is not installed"
)


def llama_tensors():
    rng = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (9, 16), "lm_head.weight": (9, 16)}
    shapes["model.norm.weight"] = (16,)
    for layer in range(2):
        at = f"model.layers.{layer}."
        for name, shape in {
            "self_attn.q_proj": (16, 16),
            "self_attn.k_proj": (8, 16),
            "self_attn.v_proj": (8, 16),
            "self_attn.o_proj": (16, 16),
            "mlp.gate_proj": (20, 16),
            "mlp.up_proj": (20, 16),
            "mlp.down_proj": (16, 20),
            "input_layernorm": (16,),
            "post_attention_layernorm": (16,),
        }.items():
            shapes[f"{at}{name}.weight"] = shape
        shapes[f"{at}self_attn.rotary_emb.inv_freq"] = (2,)
    return {name: rng.normal(0, 0.5, shape) for name, shape in shapes.items()}


def gpt2_tensors(prefix="transformer."):
    rng = np.random.default_rng(0)
    shapes = {"wte.weight": (9, 12), "wpe.weight": (10, 12)}
    shapes |= {"ln_f.weight": (12,), "ln_f.bias": (12,)}
    for layer in range(2):
        for name, shape in {
            "ln_1": (12,),
            "attn.c_attn": (12, 36),
            "attn.c_proj": (12, 12),
            "ln_2": (12,),
            "mlp.c_fc": (12, 48),
            "mlp.c_proj": (48, 12),
        }.items():
            shapes[f"h.{layer}.{name}.weight"] = shape
            shapes[f"h.{layer}.{name}.bias"] = shape[-1:]
        shapes[f"h.{layer}.attn.bias"] = (1, 1, 10, 10)
    return {prefix + name: rng.normal(0, 0.5, shape) for name, shape in shapes.items()}


def write_folder(folder, config, tensors) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )


def slow_llama(tensors, tokens):
    """As transformers writes it: halves of a head rotated, heads repeated."""
    x = tensors["model.embed_tokens.weight"][tokens]
    n = len(tokens)
    speeds = 500.0 ** (-np.arange(0, 4, 2) / 4)
    angles = np.outer(np.arange(n), np.concatenate([speeds, speeds]))

    def norm(name, x):
        return tensors[name] * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    def rotated(x):
        half = np.concatenate([-x[..., 2:], x[..., :2]], axis=-1)
        return x * np.cos(angles) + half * np.sin(angles)

    for layer in range(2):
        at = f"model.layers.{layer}."
        weight = {name: tensors[at + name + ".weight"] for name in (
            *(f"self_attn.{part}_proj" for part in "qkvo"),
            *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
        )}  # fmt: skip
        h = norm(f"{at}input_layernorm.weight", x)
        query, key, value = (
            (h @ weight[f"self_attn.{part}_proj"].T).reshape(n, -1, 4).transpose(1, 0, 2)
            for part in "qkv"
        )
        key, value = (np.repeat(array, 2, axis=0) for array in (rotated(key), value))
        scores = rotated(query) @ key.transpose(0, 2, 1) / 2
        scores[:, ~np.tri(n, dtype=bool)] = -np.inf
        p = np.exp(scores)
        context = (p / p.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(n, -1)
        x = x + context @ weight["self_attn.o_proj"].T
        h = norm(f"{at}post_attention_layernorm.weight", x)
        gate = h @ weight["mlp.gate_proj"].T
        hidden = gate / (1 + np.exp(-gate)) * (h @ weight["mlp.up_proj"].T)
        x = x + hidden @ weight["mlp.down_proj"].T
    return norm("model.norm.weight", x) @ tensors["lm_head.weight"].T


def test_llama_is_what_its_library_computes(tmp_path) -> None:
    tensors = llama_tensors()
    write_folder(tmp_path, LLAMA, tensors)
    model, weights = load_hugging_face_text(tmp_path)
    assert (model.name, model.kv_heads, model.positions, model.rotary_base) == (
        *(tmp_path.name, 2, 12, 500),
    )
    assert (model.tied, model.bias, model.norm, model.epsilon) == (False, False, "rmsnorm", 1e-6)
    tokens = np.array([1, 4, 8, 0, 3, 3])
    logits = forward(model, weights, tokens[None])["logits"][0]
    np.testing.assert_allclose(logits, slow_llama(tensors, tokens), atol=1e-10)


def test_other_ways_to_say_llama(tmp_path) -> None:
    tensors = llama_tensors()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    changed = {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    del changed["num_key_value_heads"], changed["rope_theta"]
    changed["rope_parameters"] = {"rope_type": "default", "rope_theta": 70.0}
    for name, tensor in llama_tensors().items():
        if name.endswith("proj.weight"):
            if "k_proj" in name or "v_proj" in name:
                tensors[name] = tensor = np.concatenate([tensor, tensor])
            tensors[name.replace("weight", "bias")] = np.arange(len(tensor), dtype=float)
    write_folder(tmp_path, changed, tensors)
    model, weights = load_hugging_face_text(tmp_path)
    assert (model.kv_heads, model.rotary_base, model.tied, model.bias) == (4, 70.0, True, True)
    assert weights["layers.1.query.bias"][:8].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert weights["layers.1.value.bias"].tolist() == list(range(16))
    assert "head.weight" not in weights


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_gpt2_leaves_its_columns(tmp_path, prefix) -> None:
    tensors = gpt2_tensors(prefix)
    write_folder(tmp_path, GPT2, tensors)
    model, weights = load_hugging_face_text(tmp_path)
    assert (model.ffn, model.heads, model.norm, model.position) == (48, 3, "layernorm", "learned")
    assert (model.activation, model.bias, model.tied, model.gated) == ("gelu_tanh", True, True, 0)
    attention = tensors[f"{prefix}h.1.attn.c_attn.weight"]
    for index, name in enumerate(("query", "key", "value")):
        columns = slice(12 * index, 12 * (index + 1))
        np.testing.assert_array_equal(weights[f"layers.1.{name}.weight"], attention[:, columns].T)
        bias = tensors[f"{prefix}h.1.attn.c_attn.bias"]
        np.testing.assert_array_equal(weights[f"layers.1.{name}.bias"], bias[columns])
    up = tensors[f"{prefix}h.0.mlp.c_fc.weight"]
    np.testing.assert_array_equal(weights["layers.0.up.weight"], up.T)
    np.testing.assert_array_equal(weights["positions"], tensors[f"{prefix}wpe.weight"])


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (LLAMA, {"model_type": "bert"}, f"Model type 'bert' in {{0}}/config.json is not one of "
                                        f"{', '.join(TEXT_FAMILIES)}"),
        (LLAMA, {"model_type": "olmo2"}, "Model type 'olmo2' in {0}/config.json is not run: it "
         "has norms of whole queries and keys, or of what blocks add; Qwen3, Llama and their kin "
         "do not"),
        (LLAMA, {"rope_scaling": {"factor": 2}}, ROPE.format("None")),
        (LLAMA, {"rope_parameters": {"rope_type": "su"}}, ROPE.format("'su'")),
        (LLAMA, {"attention_bias": True},
         "Weight 'layers.0.query.bias' is missing in {0}/model.safetensors"),
        (LLAMA, {"hidden_size": None}, "Configuration {0}/config.json must give the integer "
                                       "'hidden_size'"),
        (LLAMA, {"hidden_act": "sine"},
         f"Activation 'sine' in {{0}}/config.json is not one of {KNOWN}"),
        (LLAMA, {"num_key_value_heads": 3}, "Model field heads must be a multiple of kv_heads, "
         "but heads is 4 and kv_heads is 3 in {0}/config.json"),
        (LLAMA, {"vocab_size": 8}, "Weight 'words' must have the shape [8, 16], not [9, 16] in "
                                   "{0}/model.safetensors"),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True},
         "Setting 'scale_attn_by_inverse_layer_idx' in {0}/config.json must be False, not True"),
        (LLAMA, {"model_type": "gpt_neox", "use_parallel_residual": True},
         "Setting 'use_parallel_residual' in {0}/config.json must be False, not True: attention "
         "and MLP stand side by side; Llama, GPT-2 and their kin have one behind other; "
         "and Settings in {0}/config.json that a model of type gpt_neox does not have: "
         "'num_key_value_heads', 'rms_norm_eps'; if no output of the model depends on them, take "
         "them out of the file"),
        (GPT2, {"n_embd": 15}, "Weight 'layers.0.attention.bias' must have 45 outputs, not 36 in "
                               "{0}/model.safetensors"),
    ],
)  # fmt: skip
def test_configurations_that_are_refused(tmp_path, config, changes, message) -> None:
    tensors = llama_tensors() if config is LLAMA else gpt2_tensors()
    write_folder(tmp_path, {**config, **changes}, tensors)
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(tmp_path))}$"):
        load_hugging_face_text(tmp_path)


def test_tensors_that_are_refused(tmp_path) -> None:
    extra = {"model.layers.0.self_attn.q_norm.weight": np.zeros(4), "gate": np.zeros(1)}
    extra["model.gate.weight"] = np.zeros(1)
    write_folder(tmp_path, LLAMA, llama_tensors() | extra)
    message = (
        f"Weights {tmp_path}/model.safetensors hold tensors that a model of type llama does not "
        "have: gate, gate.weight, layers.0.self_attn.q_norm.weight"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_hugging_face_text(tmp_path)


def write_tokenizer(folder, begin: str = "") -> None:
    """Write a tokenizer, which puts the token ``begin`` before a text if there is one."""
    words = ["<s>", "</s>", "Ġa", "b", "Ġ", "a", "c", "Ã", "©"]
    bytes_as_characters = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    text = {"Sequence": {"id": "A", "type_id": 0}}
    content = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": bytes_as_characters,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": begin, "type_id": 0}}, text],
            "pair": [text, text],
            "special_tokens": {
                begin: {"id": begin, "ids": [words.index(begin)], "tokens": [begin]}
            },
        }
        if begin
        else None,
        "decoder": bytes_as_characters,
        "model": {
            "type": "BPE",
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [["Ġ", "a"]],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))


@needs_tokenizers
def test_a_text_without_a_token_that_begins_it(tmp_path) -> None:
    write_folder(tmp_path, {**LLAMA, "bos_token_id": 9}, llama_tensors())
    write_tokenizer(tmp_path)
    tokenizer = load_text(str(tmp_path)).tokenizer
    assert tokenizer.begin is None
    assert tokenizer.encode("c a") == [6, 2]
    assert tokenizer.piece(6, -1) == b"c"
    with pytest.raises(ValueError, match=r"^The model has no token that begins a text; give"):
        tokenizer.encode("")


def test_a_model_without_a_tokenizer_takes_numbers(tmp_path) -> None:
    write_folder(tmp_path, LLAMA, llama_tensors())
    tokenizer = load_text(str(tmp_path)).tokenizer
    assert tokenizer.encode("4, 0 8") == [4, 0, 8]
    assert (tokenizer.piece(4, -1), tokenizer.piece(0, 4)) == (b"4", b" 0")
    message = "A model without a tokenizer takes token numbers from 0 to 8, not '9'"
    with pytest.raises(ValueError, match=f"^{message}$"):
        tokenizer.encode("9")


@pytest.mark.parametrize(
    ("rope", "speeds"),
    [
        ({"rope_type": "linear", "factor": 4.0}, [0.25, 0.025]),
        ({"rope_type": "dynamic", "factor": 4.0}, [1.0, 0.1]),
        # Turns within 60 places: 9.5 and 0.95; the second lies between, at (0.95 - 0.5) / 1.5.
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.5,
             "high_freq_factor": 2.0, "original_max_position_embeddings": 60},
            [1.0, 0.1 * (0.7 / 8 + 0.3) + 0.0],
        ),
        # Of the class of Phi-3, as Llama's rotates whole heads.
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, [1.0, 0.0]),
    ],
)  # fmt: skip
def test_how_fast_pairs_turn(tmp_path, rope, speeds) -> None:
    config = {**LLAMA, "rope_parameters": {"rope_theta": 100.0, **rope}}
    if "partial_rotary_factor" in rope:
        config["model_type"] = "phi3"
    write_folder(tmp_path, config, llama_tensors())
    model, weights = load_hugging_face_text(tmp_path)
    rates = weights.get("rotary_speeds", 100.0 ** (-np.arange(0, 4, 2) / 4))
    np.testing.assert_allclose(rates, speeds, rtol=0.02)
    assert model.rotary_speeds == (rope["rope_type"] != "dynamic")


def test_a_window_is_all_the_places_there_are(tmp_path) -> None:
    write_folder(tmp_path, {**LLAMA, "model_type": "mistral", "sliding_window": 7}, llama_tensors())
    assert load_hugging_face_text(tmp_path)[0].positions == 7


@pytest.mark.parametrize(
    ("used", "full_layers", "places"), [(True, 1, 7), (True, 2, 12), (False, 1, 12)]
)
def test_the_layers_behind_the_first_may_have_a_window(tmp_path, used, full_layers, places) -> None:
    tensors = llama_tensors()
    for name in list(tensors):
        if re.search(r"[qkv]_proj\.weight$", name):
            tensors[name.replace("weight", "bias")] = np.zeros(len(tensors[name]))
    window = {"sliding_window": 7, "use_sliding_window": used, "max_window_layers": full_layers}
    write_folder(tmp_path, {**LLAMA, "model_type": "qwen2", **window}, tensors)
    assert load_hugging_face_text(tmp_path)[0].positions == places
    bias = "layers.0.self_attn.o_proj.bias"
    write_folder(
        tmp_path, {**LLAMA, "model_type": "qwen2"}, tensors | {f"model.{bias}": np.ones(16)}
    )
    with pytest.raises(ValueError, match=f"a model of type qwen2 does not have: {bias}$"):
        load_hugging_face_text(tmp_path)


def test_models_of_the_package_are_loaded_by_their_names() -> None:
    tales, numerals = (load_text(name) for name in ("tales", "numerals"))
    assert (tales.description.name, numerals.description.name) == ("tales", "numerals")
    assert tales.tokenizer.decode(tales.tokenizer.encode("a cat")) == "a cat"
    assert numerals.sources[0] == "MMCXXI"


@needs_tokenizers
def test_a_folder_with_its_tokenizer(tmp_path) -> None:
    write_folder(tmp_path, LLAMA, llama_tensors())
    write_tokenizer(tmp_path, "</s>")
    source = load_text(str(tmp_path))
    assert source.description.name == tmp_path.name
    assert (source.tokenizer.begin, source.tokenizer.ends) == (1, {2, 3})
    assert source.tokenizer.encode("cé a") == [1, 6, 7, 8, 2]
    assert source.tokenizer.decode([1, 5, 4, 6]) == "a c"
    assert source.tokenizer.piece(4, 5) == b" "
    assert source.quantize().description == source.description


def test_sources_that_are_refused(tmp_path) -> None:
    def refused(message, *arguments) -> None:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            load_text(*arguments)

    refused(f"Folder {tmp_path} has no config.json", str(tmp_path))
    refused("Cannot read checkpoint nothing: No such file or directory", "nothing")
    write_folder(tmp_path, LLAMA, llama_tensors())
    words = tmp_path / "words.bin"
    message = f"Cannot read tokenizer {words}: No such file or directory"
    refused(message, str(tmp_path), words)
