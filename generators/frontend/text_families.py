"""The kinds of decoders that Hugging Face's libraries write, and how each names its parts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class TextFamily:
    """Names of the fields and tensors of one family of models."""

    fields: Mapping[str, str]
    """A description's field by the configuration's name of it."""
    activation: str
    """The configuration's name of the activation function."""
    epsilon: str
    """The configuration's name of what norms add to the variance."""
    constants: Mapping[str, Any]
    """Fields of a description that all models of the kind share."""
    prefix: str
    """Prefix of the decoder's tensors."""
    layer: str
    """Prefix of layer 0 but for its number."""
    tensors: Mapping[str, str]
    """Our name of each tensor outside of the layers, and of each part of a layer."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Settings of which one value is supported, and it."""
    ignored: re.Pattern[str] = re.compile(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
    """Tensors that hold no weights."""
    tied: bool = False
    """The head is the vocabulary where the configuration does not tell."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The configuration's name of another field to take where a field is not given."""
    inputs_first: bool = False
    """Matrices are [inputs, outputs]."""
    first_position: int = 0
    """The row of the table of positions that the first token takes."""
    gain_above: float = 0.0
    """Offset that is added to the weights of norms."""
    plain_norms: bool = False
    """Norms have no weights."""
    biased: Mapping[str, str] = field(default_factory=dict)
    """Parts of a layer that must have biases, by the setting that asks for them; empty where none
    does."""
    unscaled: bool = False
    """Scores are not divided by the root of a head's width."""


_SIZES = {
    "hidden_size": "dim",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "positions",
}
LLAMA = TextFamily(
    fields={**_SIZES, "num_key_value_heads": "kv_heads", "intermediate_size": "ffn"},
    activation="hidden_act",
    epsilon="rms_norm_eps",
    constants={"norm": "rmsnorm", "position": "rotary", "gated": True},
    prefix="model.",
    layer="layers.",
    tensors={
        "embed_tokens": "words",
        "norm": "final_norm",
        "lm_head": "head",
        "input_layernorm": "attention_norm",
        "self_attn.q_proj": "query",
        "self_attn.k_proj": "key",
        "self_attn.v_proj": "value",
        "self_attn.o_proj": "output",
        "self_attn.qkv_proj": "attention",
        "post_attention_layernorm": "mlp_norm",
        "mlp.gate_proj": "gate",
        "mlp.up_proj": "up",
        "mlp.down_proj": "down",
        "mlp.gate_up_proj": "gate_up",
    },
    defaults={"num_key_value_heads": "num_attention_heads"},
    biased={"query key value": "attention_bias", "up down": "mlp_bias"},
)
_LAYERNORM = {**LLAMA.constants, "norm": "layernorm"}
_STARCODER = {name: ours for name, ours in LLAMA.tensors.items() if not name.startswith("mlp.")} | {
    "mlp.c_fc": "up",
    "mlp.c_proj": "down",
}
_LEARNED = {"norm": "layernorm", "position": "learned", "gated": False}
GPT2 = TextFamily(
    fields={
        "n_embd": "dim",
        "n_layer": "layers",
        "n_head": "heads",
        "vocab_size": "vocabulary",
        "n_positions": "positions",
    },
    activation="activation_function",
    epsilon="layer_norm_epsilon",
    constants=_LEARNED,
    prefix="transformer.",
    layer="h.",
    tensors={
        "wte": "words",
        "wpe": "positions",
        "ln_f": "final_norm",
        "lm_head": "head",
        "ln_1": "attention_norm",
        "attn.c_attn": "attention",
        "attn.c_proj": "output",
        "ln_2": "mlp_norm",
        "mlp.c_fc": "up",
        "mlp.c_proj": "down",
    },
    only={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    ignored=re.compile(r"h\.\d+\.attn\.(masked_)?bias"),
    tied=True,
    inputs_first=True,
    biased={"query key value output up down": ""},
)
_GPT_NEO = replace(
    GPT2,
    fields={
        "hidden_size": "dim",
        "num_layers": "layers",
        "num_heads": "heads",
        "vocab_size": "vocabulary",
        "max_position_embeddings": "positions",
    },
    tensors={
        **{name: ours for name, ours in GPT2.tensors.items() if not name.startswith("attn.")},
        "attn.attention.q_proj": "query",
        "attn.attention.k_proj": "key",
        "attn.attention.v_proj": "value",
        "attn.attention.out_proj": "output",
    },
    only={},
    ignored=re.compile(r"h\.\d+\.attn\.attention\.(masked_)?bias"),
    inputs_first=False,
    biased={"output up down": ""},
    unscaled=True,
)
_OPT = TextFamily(
    fields={**_SIZES, "ffn_dim": "ffn"},
    activation="activation_function",
    epsilon="layer_norm_eps",
    constants=_LEARNED,
    prefix="model.decoder.",
    layer="layers.",
    tensors={
        "embed_tokens": "words",
        "embed_positions": "positions",
        "final_layer_norm": "final_norm",
        "lm_head": "head",
        "self_attn_layer_norm": "attention_norm",
        "self_attn.q_proj": "query",
        "self_attn.k_proj": "key",
        "self_attn.v_proj": "value",
        "self_attn.out_proj": "output",
        "layers.final_layer_norm": "mlp_norm",
        "fc1": "up",
        "fc2": "down",
    },
    only={"do_layer_norm_before": True, "_remove_final_layer_norm": False},
    tied=True,
    first_position=2,
    biased={"query key value output up down": "enable_bias"},
)
_NEOX = TextFamily(
    fields={**_SIZES, "intermediate_size": "ffn"},
    activation="hidden_act",
    epsilon="layer_norm_eps",
    constants={"norm": "layernorm", "position": "rotary", "gated": False},
    prefix="gpt_neox.",
    layer="layers.",
    tensors={
        "embed_in": "words",
        "final_layer_norm": "final_norm",
        "embed_out": "head",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "mlp_norm",
        "attention.query_key_value": "attention",
        "attention.dense": "output",
        "mlp.dense_h_to_4h": "up",
        "mlp.dense_4h_to_h": "down",
    },
    only={"use_parallel_residual": False},
    ignored=re.compile(r"layers\.\d+\.attention\.(masked_bias|bias|rotary_emb\.inv_freq)"),
    biased={"query key value output": "attention_bias", "up down": ""},
)
TEXT_FAMILIES = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "mistral": LLAMA,
    "qwen2": replace(LLAMA, biased={"query key value": ""}),
    "gemma": replace(LLAMA, tied=True, gain_above=1.0),
    "phi3": LLAMA,
    "granite": LLAMA,
    "smollm3": replace(LLAMA, tied=True),
    "olmo": replace(LLAMA, constants=_LAYERNORM, only={"clip_qkv": None}, plain_norms=True),
    "stablelm": replace(
        LLAMA,
        constants=_LAYERNORM,
        epsilon="layer_norm_eps",
        only={"use_parallel_residual": False, "qk_layernorm": False},
        biased={"query key value": "use_qkv_bias"},
    ),
    "starcoder2": replace(
        LLAMA,
        constants={**_LAYERNORM, "gated": False},
        epsilon="norm_epsilon",
        tensors=_STARCODER,
        tied=True,
        biased={"query key value output up down": "use_bias"},
    ),
    "gpt_neox": _NEOX,
    "gpt_neo": _GPT_NEO,
    "opt": _OPT,
}
"""The kinds of decoders that are read, by the configuration's ``model_type``."""
_QUERIES = "it normalizes queries and keys; Qwen2, Llama and their kin do not"
_PARALLEL = "attention and MLP stand side by side; Llama, GPT-2 and their kin have one behind other"
_SLOPES = "its scores have slopes by distance (ALiBi); Llama, GPT-2 and their kin have none"
_EXPERTS = "it is a mixture of experts; dense models of the same family are read"
_PAIR = "it is an encoder-decoder with norms behind sums; Blenderbot and Pegasus have them in front"
_SLOPED_PAIR = "its scores have biases by distance; Blenderbot and Pegasus have none"
_SOUNDS = "its encoder takes sounds; encoder-decoders take texts, such as Blenderbot and Pegasus"
WHY = {"use_parallel_residual": f": {_PARALLEL}", "qk_layernorm": f": {_QUERIES}"}
"""Meaning of the other values of settings of which one value is supported."""
REFUSED = {
    "qwen3": _QUERIES,
    "olmo2": _QUERIES,
    "gemma2": "it normalizes what blocks add and caps scores; Gemma's first generation does not",
    "gemma3": _QUERIES,
    "gemma3_text": _QUERIES,
    "phi": _PARALLEL,
    "gptj": _PARALLEL,
    "codegen": _PARALLEL,
    "cohere": _PARALLEL,
    "falcon": _PARALLEL,
    "bloom": _SLOPES,
    "mpt": _SLOPES,
    "mixtral": _EXPERTS,
    "qwen2_moe": _EXPERTS,
    "qwen3_moe": _EXPERTS,
    "deepseek_v2": _EXPERTS,
    "deepseek_v3": _EXPERTS,
    "gpt_oss": _EXPERTS,
    "t5": _SLOPED_PAIR,
    "bart": _PAIR,
    "marian": _PAIR,
    "whisper": _SOUNDS,
    "mamba": "it has no attention; the machine runs Transformers",
    "rwkv": "it has no attention; the machine runs Transformers",
}
"""Kinds that are known and not read, and why."""
