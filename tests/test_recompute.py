"""Keys and values that each run makes anew from the inputs of attention, which alone are kept."""

import json
import re

import numpy as np
import pytest

from celosia.arch.vector_config import PARAM_BYTES
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.text_session import TextSession
from tests.support.longer import longer
from tests.support.text_cases import LLAMA, PAIRED, RESIDENT, TEXT

GPT = TextDescription(
    name="gpt",
    vocabulary=37,
    positions=64,
    dim=24,
    layers=3,
    heads=4,
    ffn=40,
    position="learned",
    norm="layernorm",
    gated=False,
    activation="gelu_tanh",
    bias=True,
)
ROTARY = LLAMA.replace(kv_heads=6, layers=3)
SAMPLED = {"texts": 2, "length": 24}
PASSING = {"param_depth": 64}
ODD = {"rows": 5, "cols": 3, "lanes": 1, "fused": False, "weight_group": 10, "rotary": False}
TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 37, 30)]


def decoder(model=GPT, **options):
    return untrained(model, Quantization(**SAMPLED, **options))


def kept(program) -> int:
    """Return the slots, or bytes, that keys, values and inputs take among others."""
    return program.slots if program.resident else program.memory_bytes + program.scratchpad_bytes


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        (RESIDENT, {}),
        (PASSING, {}),
        # The test on the circuit has the first.
        *longer(({}, {}), (ODD, {})),
        (ODD | {"weight_depth": 2048, "param_depth": 1024}, {}),
        ({"acc_depth": 128}, {}),
        ({}, {"weights": "int4", "low_rank": 3}),
        (PAIRED, {"weights": "int4", "group": 16}),
    ],
)
def test_tokens_are_those_of_kept_keys_and_values(changes, options) -> None:
    """Every score is the reference's, behind steps and chunks, and where the cache goes round."""
    model, config = decoder(**options), TEXT.replace(**changes)
    plain, anew = (
        compile_text(model, config, context=16, sinks=2, rows=6, recompute=recompute)
        for recompute in (False, True)
    )
    assert anew.resident == plain.resident
    assert kept(anew) < kept(plain)
    session, cache = TextSession(anew, "golden"), KvCache(slots=16, sinks=2)
    for first, end in ((0, 5), (5, 6), (6, 12)):
        assert session.take(TOKENS[first:end]).mismatches == 0
        wanted = evaluate(model, TOKENS[first:end], cache)["logits"][-1]
        assert np.array_equal(session.logits(), wanted)
    for token in TOKENS[12:22]:
        assert session.step(token).mismatches == 0
        assert np.array_equal(session.logits(), evaluate(model, [token], cache)["logits"][-1])
    cycles = [program.expect(program.run(15), 16).cycles for program in (plain, anew)]
    assert cycles[0] < cycles[1] < 3 * cycles[0]


@pytest.mark.parametrize(
    "changes", [{}, RESIDENT, PASSING, {"cols": 6, "lanes": 2, "acc_depth": 160}]
)
def test_rotated_keys_are_those_of_their_places(changes) -> None:
    """Every score is the reference's, up to the last place."""
    model = decoder(ROTARY)
    program = compile_text(model, TEXT.replace(**changes), context=28, rows=6, recompute=True)
    session, cache = TextSession(program, "golden"), KvCache()
    for first, end in ((0, 5), (5, 6), (6, 12), (12, 13), (13, 28)):
        assert session.take(TOKENS[first:end]).mismatches == 0
        wanted = evaluate(model, TOKENS[first:end], cache)["logits"][-1]
        assert np.array_equal(session.logits(), wanted)
    with pytest.raises(ValueError, match=r"^Model llama takes at most 28 tokens, not 29$"):
        session.step(1)


def test_half_of_the_cache_is_left() -> None:
    model = decoder()
    programs = {
        name: [
            compile_text(model, TEXT.replace(**changes), context=16, recompute=recompute)
            for recompute in (False, True)
        ]
        for name, changes in (("resident", RESIDENT), ("passing", PASSING))
    }
    # Two tile columns of keys and two tiles of values, of four heads and two layers of three.
    plain, anew = programs["resident"]
    assert plain.slots - anew.slots == 2 * 4 * (2 + 2)
    plain, anew = programs["passing"]
    read = [
        program.expect(program.run(15), 16).words_read * TEXT.mem_bytes
        for program in programs["passing"]
    ]
    # A parameter word more says that inputs are kept as they are; each layer brings it.
    word = TEXT.vector.lanes * PARAM_BYTES
    assert plain.memory_bytes - anew.memory_bytes == 3 * 16 * GPT.dim - word
    # Behind the layers the new token's rows are loaded once more.
    assert read[0] - read[1] == 3 * (16 * GPT.dim - word) + GPT.dim


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize("model", [GPT, ROTARY], ids=["learned", "rotary"])
def test_the_circuit_has_the_golden_machines_tensors(model) -> None:
    program = compile_text(decoder(model), TEXT, context=24, rows=4, recompute=True)
    session = TextSession(program, "verilator")
    assert session.take(TOKENS[:9]).mismatches == 0
    for token in TOKENS[9:20]:
        turn = session.step(token)
        assert turn.mismatches == 0
        assert turn.tensors > 30
    expected = program.expect(program.run(19), session.timing.latency).cycles
    assert turn.cycles == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            LLAMA,
            {},
            "must be larger than their inputs, but model llama has inputs of 24 columns "
            "and keys and values of 24",
        ),
        (GPT, {"kv_bits": 4}, "have 8 bits, not 4"),
        (
            GPT,
            {"weights": "nested"},
            "are of one precision, but the weights of model gpt are nested",
        ),
        (
            GPT.replace(layers=2),
            {},
            "save no scratchpad of model gpt: inputs of 2 layers and keys and values of one are 96 "
            "bytes a token, keys and values of all are 96",
        ),
    ],
)
def test_what_cannot_be_made_anew_is_refused(model, options, message) -> None:
    message = f"Keys and values that are made anew {message}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(decoder(model, **options), TEXT, context=16, recompute=True)


def test_command_says_the_same_with_half_of_the_slots(celosia) -> None:
    words = ("run", "tales", "--prompt", "one day", "--steps", "4", "--sim", "golden", "--json")
    words += ("--context", "32")
    reports = [
        json.loads(celosia(*words, *more)[1]) for more in ((), ("--quantize", "kv=recompute"))
    ]
    plain, anew = reports
    assert (plain["recompute"], anew["recompute"]) == (False, True)
    assert anew["text"] == plain["text"]
    assert anew["mismatches"] == 0
    assert anew["slots"] < plain["slots"]
