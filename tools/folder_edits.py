"""Small folders of every supported family, and edits of them: settings and tensors."""

import json
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from celosia.arch.tables import read_table
from celosia.generators.frontend.hugging_face_folder import TABLES
from celosia.generators.frontend.hugging_face_pair import PAIR_FAMILIES
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_families import TEXT_FAMILIES
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.floats import forward

DATA = Path(__file__).parents[1] / "tests" / "data" / "edits"
Config = dict[str, Any]
Tensors = dict[str, np.ndarray]
_SETTINGS = read_table(TABLES / "settings.toml")
_OTHER = {
    "flag": lambda value: not value,
    "epsilon": lambda _: 0.05,
    "factor": lambda value: value * 1.5,
    "share": lambda value: 0.5 if value != 0.5 else 1.0,
    "base": lambda _: 50.0,
    "text": lambda _: "relu",
    "padding": lambda value: value + 2,
}
"""Another value of a setting, by its kind."""
_HEADS_OF = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_FUNCTION_OF = ("hidden_act", "activation_function", "activation")
_FUNCTIONS = ("gelu", "gelu_new", "quick_gelu", "gelu_fast", "silu", "mish", "leaky_relu", "relu6")
_PLACES_OF = ("max_position_embeddings", "n_positions")


def tensors_of(shapes: dict[str, list[int]]) -> Tensors:
    """Return random tensors of given shapes; names and shapes determine the numbers."""
    tensors = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        tensor = rng.normal(0, 0.3, shape)
        norm = len(shape) == 1 and name.endswith("weight")
        # A bias of logits that is no weight, and 0 in every published model.
        tensors[name] = (tensor + norm).astype(np.float32) * (name != "final_logits_bias")
    return tensors


def inputs_of(config: Config) -> list[np.ndarray]:
    """Return an input of a base: a text, an image, a spectrogram, or a source and a text."""
    kind, rng = config["model_type"], np.random.default_rng(1)
    if kind == "audio-spectrogram-transformer":
        return [rng.normal(0, 1, (config["max_length"], config["num_mel_bins"]))]
    if "patch_size" in config:
        size = config["image_size"]
        return [rng.normal(0, 1, (config["num_channels"], size, size))]
    # Neither the tokens of padding nor those of the ends.
    texts = [rng.integers(4, config["vocab_size"], count) for count in (9, 7)]
    return texts if kind in PAIR_FAMILIES else texts[:1]


def write(folder: Path, config: Config, tensors: Tensors) -> None:
    """Write a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})


def imported(folder: Path, inputs: list[np.ndarray]) -> np.ndarray:
    """Return the output of a folder for an input, in float64."""
    kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    if kind in TEXT_FAMILIES or kind in PAIR_FAMILIES:
        source, cache = load_text(str(folder)), KvCache()
        model, weights = source.description, source.weights
        if kind in PAIR_FAMILIES:
            forward(model, weights, inputs[0][None], cache, source=True)
        return forward(model, weights, inputs[-1][None], cache)["logits"][0]
    source = load_source(str(folder))
    return np.asarray(source.floats(source.prepare(inputs[0])))


def edits(base: Config, shapes: dict[str, list[int]]) -> Iterator[tuple[str, Config, Tensors]]:
    """Return the name, the settings and the tensors of each edit, the base itself first."""
    tensors = tensors_of(shapes)

    def edit(name: str, change: Callable[[Config, Tensors], None]) -> tuple[str, Config, Tensors]:
        config, some = deepcopy(base), dict(tensors)
        change(config, some)
        return name, config, some

    def without(*names: str) -> Callable[[Config, Tensors], None]:
        return lambda config, _: [config.pop(name, None) for name in names] and None

    def with_these(**settings: Any) -> Callable[[Config, Tensors], None]:
        return lambda config, _: config.update(settings)

    yield edit("as it is", lambda config, some: None)
    known = _SETTINGS[base["model_type"]]
    for name in base:
        kind = known.get(name, ["free"])[0]
        if name != "model_type" and kind != "free":
            yield edit(f"without {name}", without(name))
        if name != "model_type" and kind in _OTHER and base[name] is not None:
            yield edit(f"other {name}", with_these(**{name: _OTHER[kind](base[name])}))
        if kind == "epsilon":
            yield edit(f"no {name}", with_these(**{name: 0.0}))
        if name in _HEADS_OF:
            yield edit(f"fewer {name}", with_these(**{name: base[name] // 2}, **_fewer_keys(base)))
        if name in _FUNCTION_OF:
            for function in _FUNCTIONS:
                yield edit(f"{name} {function}", with_these(**{name: function}))
        if name in _PLACES_OF:
            yield edit(f"fewer {name}", with_these(**{name: base[name] - 6}))
    yield edit("another class", with_these(architectures=["UnknownForNothing"]))
    yield edit("generation", with_these(temperature=0.7, num_beams=4, top_k=9))
    yield edit("an older type", with_these(torch_dtype="float16", torchscript=False))
    yield edit("training", with_these(gradient_checkpointing=True, initializer_range=0.5))
    yield edit("answers", with_these(use_cache=False, return_dict=True, chunk_size_feed_forward=0))
    yield edit("a hub's", with_these(_name_or_path="a/b", auto_map={"AutoModel": "x.Y"}, prefix=""))
    yield edit("unknown setting", with_these(attention_temperature=2.0))
    yield edit("quantized", with_these(quantization_config={"quant_method": "gptq", "bits": 4}))
    yield from (
        edit(f"also {setting}", with_these(**more)) for setting, more in _more(base).items()
    )
    yield from (edit(f"tensors: {label}", change) for label, change in _tensor_edits(base, tensors))


def _fewer_keys(base: Config) -> Config:
    return {name: base[name] // 2 for name in ("num_key_value_heads",) if name in base}


def _more(base: Config) -> dict[str, Config]:
    """Return settings to add or to change, by their descriptions."""
    kind, more = base["model_type"], {}
    if "rope_parameters" in base:
        half = base["max_position_embeddings"] // 4
        width = base.get("head_dim") or base["hidden_size"] // base["num_attention_heads"]
        pairs = int(width * base["rope_parameters"].get("partial_rotary_factor", 1.0)) // 2
        stretched = {"factor": 4.0, "original_max_position_embeddings": half}
        more = {
            "an older base": {"rope_parameters": None, "rope_theta": 77.0},
            "a share": {"rope_parameters": None, "partial_rotary_factor": 0.5},
            "linear": {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "older linear": {"rope_scaling": {"type": "linear", "factor": 3.0}},
            "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 3.0}},
            "both": {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 99.0}},
            "yarn": {"rope_parameters": {"rope_type": "yarn", **stretched, "rope_theta": 500.0}},
            "yarn without its places": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "llama3": {
                "rope_scaling": {
                    "rope_type": "llama3", **stretched,
                    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                }
            },
            "places beside": {
                "original_max_position_embeddings": 16,
                "rope_scaling": {"rope_type": "yarn", **stretched},
            },
        }  # fmt: skip
        if kind == "gpt_neox":
            more["a base of its own"] = {"rope_parameters": None, "rotary_emb_base": 55}
            more["a share of its own"] = {"rope_parameters": None, "rotary_pct": 0.5}
        factors = {
            "short_factor": [1.0 + 0.3 * pair for pair in range(pairs)],
            "long_factor": [2.0 + pair for pair in range(pairs)],
        }
        places = {"original_max_position_embeddings": 16}
        long = {"rope_type": "longrope", **places, **factors}
        more |= {
            "longrope": {"rope_scaling": long},
            "longrope, beside": {"rope_scaling": {"type": "longrope", **factors}, **places},
            "longrope by a factor": {"rope_scaling": {**long, "factor": 3.0}},
            "longrope with a window": {"rope_scaling": long, "sliding_window": 20},
            "longrope beyond": {"rope_scaling": {**long, "original_max_position_embeddings": 6}},
        }
    if "sliding_window" in _SETTINGS[kind]:
        more["a window"] = {"sliding_window": 5}
        more["a wide window"] = {"sliding_window": 15, "use_sliding_window": True}
    if kind == "qwen3":
        half = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 15}
        more["windows in half of the layers"] = {**half, "use_sliding_window": True}
    if kind == "smollm3":
        turns, some = {"no_rope_layers": [1, 0, 1]}, ["sliding_attention"] * 2 + ["full_attention"]
        window = {"use_sliding_window": True, "sliding_window": 15}
        more |= {
            "a layer without positions": turns,
            "positions in one layer": {"no_rope_layers": [0, 1, 0, 1, 1]},
            "no positions": {"no_rope_layers": [0, 0, 0]},
            "too few layers": {"no_rope_layers": [1, 0]},
            "every other layer": {"no_rope_layers": None, "no_rope_layer_interval": 2},
            "windows without positions": {**turns, **window, "layer_types": None},
            "windows in most layers": {"no_rope_layers": [1, 1, 0], **window, "layer_types": some},
            "yarn in two layers": {**turns, **more["yarn"]},
        }
    if kind == "gemma":
        more["an older activation"] = {"hidden_activation": "silu"}
    return more


def _tensor_edits(
    base: Config, tensors: Tensors
) -> Iterator[tuple[str, Callable[[Config, Tensors], None]]]:
    first, last = min(tensors), max(tensors)

    def add(name: str, *shape: int) -> Callable[[Config, Tensors], None]:
        return lambda _, some: some.update(tensors_of({name: shape}))

    def same(name: str, other: str) -> Callable[[Config, Tensors], None]:
        return lambda _, some: some.update({name: some[other]})

    def remove(*names: str) -> Callable[[Config, Tensors], None]:
        return lambda _, some: [some.pop(name, None) for name in names] and None

    layer = next(name for name in sorted(tensors) if ".0." in name and name.endswith("weight"))
    yield "an extra one", add("adapter.weight", 3, 3)
    if base["model_type"] in _BUFFERS:
        yield "an older buffer", add(_BUFFERS[base["model_type"]], 4)
    yield "a lost one", remove(layer)
    yield (
        "in halves",
        lambda _, some: some.update(
            {name: tensor.astype(np.float16) for name, tensor in some.items()}
        ),
    )
    norms = [name for name in tensors if "LayerNorm" in name]
    if norms:
        yield "older names", lambda _, some: some.update({
            n.replace("weight", "gamma").replace("bias", "beta"): some.pop(n) for n in norms
        })  # fmt: skip
    yield "the first one lost", remove(first)
    yield "the last one lost", remove(last)
    wide = next((name for name in sorted(tensors) if name.endswith("bias") and ".0." in name), None)
    if wide:
        yield "a lost bias", remove(wide)
    bare = [name for name in sorted(tensors) if ".0." in name and name.endswith("weight")
            and name.replace("weight", "bias") not in tensors]  # fmt: skip
    if bare:
        extra = bare[0].replace("weight", "bias")
        yield "an extra bias", add(extra, len(tensors[bare[0]]))
    words = next((name for name in tensors if _WORDS.intersection(name.split("."))), None)
    for head in _HEADS:
        if f"{head}.weight" in tensors:
            yield f"{head} lost", remove(f"{head}.weight")
        own = "embed_out" if base["model_type"] == "gpt_neox" else "lm_head"
        if words and base["model_type"] in (*TEXT_FAMILIES, *PAIR_FAMILIES) and head == own:
            yield f"{head} is the vocabulary", same(f"{head}.weight", words)
            yield f"{head} is another one", add(f"{head}.weight", *tensors[words].shape)
    for dense in ("cls.predictions", "lm_head", "predictions"):
        if f"{dense}.bias" in tensors and words:
            size = tensors[words].shape
            yield f"{dense} with another bias", add(f"{dense}.decoder.bias", size[0])
            yield f"{dense} with another decoder", add(f"{dense}.decoder.weight", *size)


_ROTARY = "model.layers.0.self_attn.rotary_emb.inv_freq"
_BUFFERS = {
    **dict.fromkeys(
        (
            *("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3", "granite", "smollm3"),
            *("olmo", "stablelm", "starcoder2"),
        ),
        _ROTARY,
    ),
    "gpt_neox": "gpt_neox.layers.0.attention.rotary_emb.inv_freq",
    "gpt2": "transformer.h.0.attn.masked_bias",
    "gpt_neo": "transformer.h.0.attn.attention.bias",
    "bert": "bert.embeddings.position_ids",
    "roberta": "roberta.embeddings.position_ids",
    "xlm-roberta": "roberta.embeddings.position_ids",
    "camembert": "roberta.embeddings.position_ids",
    "distilbert": "distilbert.embeddings.position_ids",
    "electra": "electra.embeddings.position_ids",
    "albert": "albert.embeddings.position_ids",
    "clip_vision_model": "vision_model.embeddings.position_ids",
}
"""A tensor of older files that contains no weights, by the kind of model."""
_WORDS = {"embed_tokens", "wte", "embed_in", "word_embeddings", "shared"}
_HEADS = ("lm_head", "embed_out", "classifier", "cls.predictions.decoder", "vocab_projector")
