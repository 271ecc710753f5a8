"""Which instructions and flags compiled models use: encoders, decoders, small random ones."""

import numpy as np

from celosia.arch.instruction import unpack
from celosia.arch.isa import DEFINITIONS, Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.decoders import GPT, LLAMA

SMALL = PRESETS["small"]
MODEL = ModelDescription(name="toy", tokens=6, features=3, dim=16, layers=2, heads=4, ffn=20)
SHAPED = {"norm": "none", "final_norm": False, "skip": False, "shaped": True, "parallel": True}
ENCODERS = (
    (MODEL, {}, {}),
    (MODEL.replace(placement="post", variable=True), {}, {}),
    (MODEL.replace(norm="rmsnorm", activation="relu"), {"fused": False}, {}),
    (MODEL.replace(**SHAPED), {}, {}),
    (MODEL, {"program_depth": 1200}, {}),
    (MODEL.replace(tokens=1, dim=24), {"sparse_lanes": 10}, {"sparse": True}),
    (MODEL, {"wide_functions": True}, {"wide_functions": True}),
    (MODEL, {"wide_operands": True}, {"activations": "mixed"}),
)
TEXT = SMALL.replace(
    scratchpad_bytes=1 << 16,
    param_depth=512,
    program_depth=8192,
    table_slots=4,
    rotary=True,
    argmax=True,
)


def programs():
    rng = np.random.default_rng(0)
    for model, fields, options in ENCODERS:
        inputs, weights = random_inputs(rng, model), random_weights(rng, model)
        if options.get("sparse"):
            weights = {name: value * (np.abs(value) > 0.4) for name, value in weights.items()}
        search_options = Options(search=False, **options)
        yield compile_model(model, weights, inputs, SMALL.replace(**fields), search_options).words
    pairs = {"array": "tree", "rows": 6, "packed_cache": True, "low_rows": 2}
    pairs |= {"zero_points": False, "operand_gating": False}
    blocks = {**pairs, "block_exponents": True}
    even = LLAMA.replace(kv_heads=2)
    for model, depth, fields in (
        (LLAMA, 1024, {}),
        (LLAMA, 1024, pairs),
        (even, 1024, blocks),
        (GPT, 2, {}),
    ):
        options = Quantization(
            texts=2,
            length=24,
            places=80 if model.position == "rotary" else 0,
            kv_bits=4 if fields else 8,
            block=2 * model.head_dim if fields is blocks else 0,
        )
        config = TEXT.replace(weight_depth=depth, **fields)
        program = compile_text(untrained(model, options), config, context=40)
        yield program.words
        yield from (fill.words for fill in program.setup)
    # Norms whose gains are folded into the products behind them have one factor.
    folded = untrained(LLAMA, Quantization(texts=2, length=24, folded=True))
    yield compile_text(folded, TEXT.replace(weight_depth=1024), context=40).words
    # And such that leave the factors of their rows to these.
    deferred = untrained(LLAMA, Quantization(texts=2, length=24, folded=True, deferred=True))
    # In so few slots key heads lie below each other.
    factors = {"weight_depth": 420, "multiplier_width": 16, "row_factors": 1 + LLAMA.heads}
    yield compile_text(deferred, TEXT.replace(cols=4, lanes=2, **factors), context=40).words
    # Each bit of a format's number, with groups, streamed and kept.
    for depth, form in ((2, "int6"), (2, "int3"), (1024, "int6"), (1024, "int3")):
        options = Quantization(texts=2, length=24, weights=form, group=16)
        config = TEXT.replace(
            weight_depth=depth, weight_formats="int4,int6,int2,nf4,int3", weight_group=16
        )
        program = compile_text(untrained(LLAMA, options), config, context=40)
        yield program.words
        yield from (fill.words for fill in program.setup)


def test_models_use_every_instruction_and_flag() -> None:
    emitted: dict[Opcode, set[str]] = {}
    for words in programs():
        for instruction in unpack(words):
            emitted.setdefault(instruction.opcode, set()).update(instruction.flags)
    assert set(DEFINITIONS) == emitted.keys()
    for opcode, flags in emitted.items():
        assert set(DEFINITIONS[opcode].flags) == flags, opcode.name
