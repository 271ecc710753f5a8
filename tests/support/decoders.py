"""Small decoders of random weights, and machines for them."""

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.frontend.weights import Weights, check_weights
from celosia.generators.quantize.options import Quantization

LLAMA = TextDescription(
    name="llama", vocabulary=37, positions=64, dim=24, layers=2, heads=6, kv_heads=3, ffn=44
)
GPT = TextDescription(
    name="gpt",
    vocabulary=30,
    positions=48,
    dim=32,
    layers=2,
    heads=2,
    ffn=40,
    norm="layernorm",
    position="learned",
    gated=False,
    activation="gelu_tanh",
    bias=True,
)
STREAMED = PRESETS["small"].replace(
    name="streamed",
    scratchpad_bytes=1 << 16,
    param_depth=512,
    program_depth=8192,
    table_slots=4,
    fused=False,
)
RESIDENT = STREAMED.replace(name="resident", weight_depth=1024)
CONFIGS = {
    "streamed": STREAMED.replace(rotary=True),
    "resident": RESIDENT.replace(rotary=True, argmax=True),
    "fused": RESIDENT.replace(rotary=True, argmax=True, fused=True),
    "odd": RESIDENT.replace(rows=5, cols=6, lanes=2, rotary=True, weight_depth=2048),
    "passing": STREAMED.replace(
        param_depth=40, scratchpad_bytes=1 << 14, table_slots=2, rotary=True, fused=True
    ),
    "bare": RESIDENT.replace(zero_points=True, rotary=True),
}


def random_decoder(model, kv_bits=8):
    places = 80 if model.position == "rotary" else 0
    return untrained(model, Quantization(texts=2, length=24, places=places, kv_bits=kv_bits))


DECODERS = {model.name: random_decoder(model) for model in (LLAMA, GPT)}
DECODERS |= {f"{model.name}_int4": random_decoder(model, kv_bits=4) for model in (LLAMA, GPT)}
HELD = RESIDENT.replace(name="held", rotary=True, argmax=True, fused=True)
PAIRS = RESIDENT.replace(
    **{"name": "pairs", "array": "tree", "rows": 6, "cols": 4, "lanes": 4, "weight_depth": 2048},
    **{"packed_cache": True, "low_rows": 2, "zero_points": False, "operand_gating": False},
    **{"rotary": True, "argmax": True, "fused": True},
)


def machines(*names):
    """Return each INT8 decoder with some configurations, and those of INT4 keys with pairs."""
    made = [(model, name) for model in ("llama", "gpt") for name in names]
    made += [("llama_int4", "pairs"), ("gpt_int4", "pairs")]
    configs = CONFIGS | {"pairs": PAIRS}
    return [pytest.param(model, configs[name], id=f"{model}-{name}") for model, name in made]


def tokens_of(decoder, count, seed=2):
    rng = np.random.default_rng(seed)
    return [int(token) for token in rng.integers(0, decoder.description.vocabulary, count)]


def random_text_weights(model: TextDescription) -> Weights:
    """Return random weights of a decoder, the same in every call.

    They are normally distributed, with a mean of 0 and a standard deviation of 0.5.
    """
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(0, 0.5, shape) for name, shape in model.shapes().items()}
    return check_weights(tensors, model)
