"""Decoders whose weights stay on the chip, and whose vocabulary has no room beside them."""

from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.tb.models.text_session import TextSession
from tests.support.decoders import (
    CONFIGS,
    GPT,
    HELD,
    LLAMA,
    PAIRS,
    random_decoder,
    tokens_of,
)
from tests.support.longer import longer

WORDS = 601
DECODERS = {
    "llama": random_decoder(replace(LLAMA, vocabulary=WORDS)),
    "gpt": random_decoder(replace(GPT, vocabulary=WORDS)),
    "llama_int4": random_decoder(replace(LLAMA, vocabulary=WORDS), kv_bits=4),
}
SMALL = {"scratchpad_bytes": 16384, "scratchpad_banks": 2}
SQUARE = {"rows": 4, "cols": 4, "lanes": 4, "weight_depth": 2048}
ODD = CONFIGS["odd"].replace(param_depth=1024)
CASES = {
    "llama-resident": ("llama", CONFIGS["resident"]),
    "llama-held": ("llama", HELD),
    "llama-aligned": ("llama", HELD.replace(scratchpad_align=4)),
    "llama-odd": ("llama", ODD),
    "gpt-resident": ("gpt", CONFIGS["resident"]),
    "gpt-odd": ("gpt", ODD),
    "llama-pairs": ("llama_int4", PAIRS),
}
FEW = [
    *("gpt-resident", "llama-aligned", "llama-odd", "llama-pairs"),
    *longer("llama-resident", "llama-held", "gpt-odd"),
]


@pytest.mark.parametrize("case", FEW)
def test_steps_and_chunks_are_the_golden_models(case):
    name, config = CASES[case]
    decoder = DECODERS[name]
    whole = compile_text(decoder, config, context=40)
    program = compile_text(decoder, config.replace(**SMALL), context=40)
    rows = decoder.embedding.words.size
    assert whole.resident
    assert program.resident
    # The last part is what stays outside, with a program that only halts.
    assert len(whole.setup[-1].words) > 1
    assert len(program.setup[-1].words) == 1
    assert program.memory_bytes >= len(program.setup[-1].image) >= rows > program.scratchpad_bytes
    session = TextSession(program, "golden")
    tokens, cache = tokens_of(decoder, 40), KvCache()
    for token in tokens:
        session.step(token)
        wanted = evaluate(decoder, [token], cache)["logits"][0]
        assert np.array_equal(session.logits(), wanted)
        assert session.choose() == np.argmax(wanted)
    for count in (1, 2, program.rows, program.rows + 1, 40):
        session.begin()
        session.take(tokens[:count])
        assert np.array_equal(session.logits(), evaluate(decoder, tokens[:count])["logits"][-1])


@pytest.mark.parametrize("name", ["llama", *longer("gpt")])
def test_on_the_verilog(name):
    decoder = DECODERS[name]
    # Also a machine of test_texts.py.
    config = HELD.replace(**SMALL, **SQUARE, registered=True, trace=True)
    program = compile_text(decoder, config, context=12, sinks=2)
    session = TextSession(program, "verilator")
    turns = [session.take([3, 300, 1, 17, 2]), *(session.step(token) for token in range(9))]
    assert session.setup.mismatches == sum(turn.mismatches for turn in turns) == 0
    assert all(turn.tensors for turn in turns)
    expected = program.expect(program.run(11), 40).cycles
    assert abs(turns[-1].cycles - expected) < 0.05 * expected


def test_layers_stay_iterations_of_a_loop():
    deep = [random_decoder(replace(LLAMA, vocabulary=WORDS, layers=n)) for n in (2, 4)]
    shallow, other = (compile_text(d, HELD.replace(**SMALL), context=40, rows=1) for d in deep)
    assert len(shallow.words) == len(other.words)


def test_external_memory_without_room_is_refused():
    config = HELD.replace(**SMALL)
    with pytest.raises(InputError, match=r"needs \d+ scratchpad bytes and \d+ of them in one bank"):
        compile_text(DECODERS["llama"], config, context=40, memory_bytes=8192)
