"""INT16 rows of products in decoders: attention of 16 bits before keys and values of INT8."""

from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.lower.equipment import equipped
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.score_error import score_errors
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.sim.matmul import WIDE_LONGEST
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.text_session import TextSession
from tests.support.longer import longer
from tests.support.text_cases import WIDE

MIXED = Quantization(texts=2, length=24, activations="mixed")
LLAMA = TextDescription(
    name="llama", vocabulary=37, positions=64, dim=24, layers=2, heads=6, kv_heads=3, ffn=44
)
GPT = LLAMA.replace(
    **{"name": "gpt", "dim": 32, "heads": 2, "kv_heads": 2, "ffn": 40, "norm": "layernorm"},
    **{"position": "learned", "gated": False, "activation": "gelu_tanh", "bias": True},
)
SOURCE = load_text("tales")
STREAMED = PRESETS["small"].replace(
    **{"scratchpad_bytes": 1 << 16, "program_depth": 8192, "param_depth": 512, "table_slots": 4},
    **{"rotary": True, "argmax": True, "wide_operands": True},
)
RESIDENT = {"weight_depth": 1024}
PASSING = {"param_depth": 40, "scratchpad_bytes": 1 << 14, "table_slots": 2}
CASES = {
    "streamed": (LLAMA, {}, {}),
    "resident": (LLAMA, RESIDENT, {}),
    "tree": (LLAMA, {**RESIDENT, "array": "tree", "rows": 5, "cols": 6, "lanes": 2}, {}),
    "unfused": (LLAMA, {**RESIDENT, "fused": False}, {"alike": False}),
    "passing": (LLAMA, PASSING, {"folded": True}),
    "learned": (GPT, {}, {}),
    "learned resident": (GPT, RESIDENT, {}),
    "int4": (LLAMA, {}, {"weights": "int4", "low_rank": 4}),
    "int4 resident": (LLAMA, RESIDENT, {"weights": "int4", "group": 8}),
    "nested": (LLAMA, {}, {"weights": "nested"}),
}


def compiled(model, changes, options, **machine):
    asked = Quantization(texts=2, length=24, activations="mixed", **options)
    decoder = untrained(model, asked, sparsity=0.9 if machine.get("sparse") else 0.0)
    config = equipped(STREAMED.replace(**changes), asked)
    return compile_text(decoder, config, context=20, sinks=3, **machine)


def run(program, simulator, count=24):
    """Take a prompt and continue past the end of the cache; return the turns."""
    session = TextSession(program, simulator)
    tokens = np.random.default_rng(2).integers(0, 37, count).tolist()
    turns, cache = [session.take(tokens[:9])], KvCache(20, 3)
    evaluate(program.graph, tokens[:9], cache)
    for token in tokens[9:]:
        turns.append(session.step(token))
        wanted = evaluate(program.graph, [token], cache)["logits"][0]
        assert np.array_equal(session.logits(), wanted)
    assert session.setup.mismatches == sum(turn.mismatches for turn in turns) == 0
    return session, turns


@pytest.mark.parametrize("name", CASES)
def test_steps_and_chunks_have_the_references_integers(name):
    program = compiled(*CASES[name])
    assert program.rows > 1
    run(program, "golden")


def test_attention_alone_has_rows_of_16_bits():
    model = LLAMA.replace(ffn=96)
    program = compiled(model, {"sparse_lanes": 8}, {}, sparse=True)
    run(program, "golden")
    instructions = [*unpack(program.words)]
    sizes = {wide: set() for wide in (False, True)}
    for instruction in instructions:
        if instruction.opcode == Opcode.MATMUL:
            sizes["a_wide" in instruction.flags].add(instruction.operand("k").immediate)
    # Projections and heads; the MLP's second matrix and values are of INT8.
    assert {LLAMA.dim, LLAMA.head_dim} <= sizes[True]
    assert model.ffn not in sizes[True]
    assert model.ffn in {
        command.operand("k").immediate
        for command in instructions
        if command.opcode == Opcode.SPARSE
    }
    assert not any(command.flags & {"b_high", "b_low"} for command in instructions)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize(
    ("name", "machine"),
    [
        # Also the machine of other tests of 16-bit operands.
        ("streamed", WIDE),
        *longer(
            ("streamed", STREAMED.replace(rows=4, cols=4, lanes=2, trace=True)),
            ("tree", STREAMED.replace(trace=True)),
        ),
    ],
    ids=["streamed", "streamed alone", "tree"],
)
def test_the_circuit_has_the_golden_machines_tensors(name, machine):
    model, changes, options = CASES[name]
    asked = replace(MIXED, **options)
    config = equipped(machine.replace(**changes), asked)
    program = compile_text(untrained(model, asked), config, context=20, sinks=3)
    session, turns = run(program, "verilator", 22)
    assert all(turn.tensors > 20 for turn in turns)
    expected = program.expect(program.run(21), session.timing.latency)
    assert expected.cycles == pytest.approx(turns[-1].cycles, rel=0.03)


@pytest.mark.parametrize(("name", "left"), [("tales", 0.5), ("rotated", 0.8)])
def test_scores_are_nearer_to_exact_ones(name, left):
    errors = []
    for activations in ("int8", "mixed"):
        options = Quantization(texts=4, length=96, activations=activations)
        decoder = untrained(LLAMA, options) if name == "rotated" else SOURCE.quantize(options)
        tokens = (
            np.random.default_rng(5).integers(0, 37, 24)
            if name == "rotated"
            else SOURCE.tokenizer.encode("one day a red fox found a shell")
        )
        layers = [*score_errors(decoder, evaluate(decoder, tokens), tokens)]
        assert len(layers) == decoder.description.layers
        errors.append(float(np.mean(layers)))
    # Keys are as coarse as before.
    assert 0.25 < errors[1] < left * errors[0], errors


def test_what_cannot_be_mixed_is_refused():
    config = STREAMED.replace(wide_operands=False)
    message = "Model llama needs the unit wide_operands, which configuration small leaves out"
    with pytest.raises(FitError, match=f"^{message}$"):
        compile_text(untrained(LLAMA, MIXED), config, context=20)
    message = (
        "Keys and values that are made anew have inputs of 8 bits, but activations of model gpt "
        "are mixed"
    )
    with pytest.raises(InputError, match=f"^{message}$"):
        compiled(GPT.replace(dim=6), {}, {}, recompute=True)
    message = "Activations mixed need kv_bits 8, but kv_bits is 4"
    with pytest.raises(InputError, match=f"^{message}$"):
        Quantization(activations="mixed", kv_bits=4)
    long = LLAMA.replace(heads=1, kv_heads=1, dim=512, head_dim=512)
    most = f"{WIDE_LONGEST} of these"
    message = f"Activations mixed sum head_dim .* {most}, but model llama has head_dim 512"
    with pytest.raises(InputError, match=f"^{message}$"):
        untrained(long, MIXED)
