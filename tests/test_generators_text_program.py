"""Decoders' programs on the golden machine, against the integer decoder in NumPy."""

import re
from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.tensors import rescale_of
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.program.allocate import middle_banks_address
from celosia.generators.quantize.multipliers import narrowed_parameters, rounded
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.sim.interpreter import Interpreter
from celosia.tb.models.text_session import TextSession
from tests.support.decoders import (
    CONFIGS,
    DECODERS,
    HELD,
    LLAMA,
    PAIRS,
    machines,
    random_decoder,
    tokens_of,
)
from tests.support.longer import longer, shorter
from tests.test_kv_blocks import PLAIN

BLOCKS = PLAIN.replace(packed_cache=True, low_rows=2, block_exponents=True, trace=True)
ALTERNATE = (
    *("llama-streamed", "gpt-resident", "llama-fused", "gpt-odd", "llama-passing", "gpt-bare"),
    *("llama_int4-pairs", "gpt_int4-pairs"),
)
"""Cases of `make test`: each machine, and each kind of decoder."""
SHIFTED = [machines("streamed", "fused")[place] for place in (0, 1, 3, 2, 4, 5)]
"""Cases in an order in which every second one is of both machines."""


@pytest.mark.parametrize(
    ("name", "config"),
    [
        case
        if case.id in ALTERNATE
        else pytest.param(*case.values, id=case.id, marks=pytest.mark.long)
        for case in machines(*CONFIGS)
    ],
)
def test_steps_and_chunks_are_the_golden_models(name, config):
    decoder = DECODERS[name]
    program = compile_text(decoder, config, context=40)
    assert program.resident == (config.array.weight_depth > 2)
    session = TextSession(program, "golden")
    tokens, cache = tokens_of(decoder, 40), KvCache()
    for position, token in enumerate(tokens):
        turn = session.step(token)
        wanted = evaluate(decoder, [token], cache)["logits"][0]
        assert np.array_equal(session.logits(), wanted)
        assert session.choose() == np.argmax(wanted)
        assert turn.counters["macs"] == program.macs(position)
    assert 1 < program.rows <= 14
    for count in (1, 2, program.rows, program.rows + 1, 2 * program.rows + 3, 40):
        session.begin()
        session.take(tokens[:count])
        assert np.array_equal(session.logits(), evaluate(decoder, tokens[:count])["logits"][-1])
        assert session.choose() == np.argmax(session.logits())


def test_a_choice_among_negative_scores() -> None:
    options = Quantization(texts=2, length=8, places=80)
    decoder = untrained(LLAMA.replace(vocabulary=2, layers=1), options, seed=2)
    session = TextSession(compile_text(decoder, CONFIGS["resident"], context=8), "golden")
    best = []
    for token in (0, 1, 1, 0, 0, 1):
        session.step(token)
        best.append(int(session.logits().max()))
        session.choose()
    assert min(best) < 0
    assert [turn.wrong for turn in session.turns] == [[]] * len(best)


@pytest.mark.parametrize(("name", "config"), machines("streamed", "resident"))
def test_keys_and_values_are_the_references(monkeypatch, name, config):
    decoder = DECODERS[name]
    program = compile_text(decoder, config.replace(fused=False), context=40, rows=1)
    session = TextSession(program, "golden")
    wrote: list[np.ndarray] = []
    write = Interpreter._write

    def recorded(self, step, name, values, wide):
        if self is session.golden:
            wrote.append(np.array(values))
        return write(self, step, name, values, wide)

    monkeypatch.setattr(Interpreter, "_write", recorded)
    cache, ends = KvCache(), []
    for token in tokens_of(decoder, 24):
        wrote.clear()
        session.step(token)
        names = [written.name for written in program.entries["step"].written]
        tensors = dict(zip(names, wrote, strict=True))
        wanted = evaluate(decoder, [token], cache)
        for layer in range(decoder.description.layers):
            for kind in ("key", "query", "value"):
                tensor = f"layers.{layer}.{kind}"
                assert np.array_equal(tensors[tensor], wanted[tensor])
                if kind != "query":
                    ends += [tensors[tensor].min(), tensors[tensor].max()]
    assert -128 <= min(ends) <= -100
    assert 90 <= max(ends) < 128


@pytest.mark.parametrize(("name", "config", "sinks"), shorter(SHIFTED, [(0,), (3,)]))
def test_context_longer_than_the_cache(name, config, sinks):
    decoder = DECODERS[name]
    program = compile_text(decoder, config, context=19, sinks=sinks)
    session = TextSession(program, "golden")
    tokens = tokens_of(decoder, 48)
    cache = KvCache(slots=19, sinks=sinks)
    session.take(tokens[:17])
    evaluate(decoder, tokens[:17], cache)
    session.take(tokens[17:23])  # a chunk up to the cache's end, then one by one
    for token in tokens[17:23]:
        wanted = evaluate(decoder, [token], cache)["logits"][0]
    assert np.array_equal(session.logits(), wanted)
    for token in tokens[23:]:
        turn = session.step(token)
        assert np.array_equal(session.logits(), evaluate(decoder, [token], cache)["logits"][0])
        assert turn.counters["macs"] == program.macs(session.length - 1) == program.macs(18)


def test_heads_wider_than_tiles():
    model = LLAMA.replace(name="broad", heads=2, kv_heads=1, head_dim=14, dim=20, layers=1)
    decoder = random_decoder(model)
    for config in (CONFIGS["odd"], CONFIGS["streamed"]):
        session = TextSession(compile_text(decoder, config, context=30), "golden")
        tokens = tokens_of(decoder, 25)
        session.take(tokens[:-2])
        for token in tokens[-2:]:
            session.step(token)
        assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])


def test_parameters_in_the_bits_that_a_machine_holds():
    decoder = DECODERS["llama"]
    words = sum(len(op.rescale.multiplier) for op in decoder.ops if isinstance(op, Linear))
    held = HELD.replace(multiplier_width=16, bias_width=20, pre_depth=24)
    program = compile_text(decoder, held, context=40)
    rescales = [op.rescale for op in program.graph.ops if isinstance(op, Linear)]
    assert sum(len(rescale.multiplier) for rescale in rescales) == words
    assert not any(np.any(rescale.multiplier & 0xFFFF) for rescale in rescales)
    session, tokens = TextSession(program, "golden"), tokens_of(decoder, 12)
    session.take(tokens)
    assert np.array_equal(session.logits(), evaluate(program.graph, tokens)["logits"][-1])
    for changes, message in (
        ({"bias_width": 2}, r"has biases of \d+ bits, but bias_width is 2"),
        ({"pre_depth": 3}, r"accumulators with \d+ parameter words, but pre_depth is 3"),
        ({"weight_depth": 2}, "needs multiplier_width 32, which only decoders whose weights stay"),
    ):
        with pytest.raises(InputError, match=message):
            compile_text(decoder, held.replace(**changes), context=40)


@pytest.mark.parametrize(
    ("bias", "width"),
    [(0, 1), (1, 2), (-1, 1), (-2, 2), (127, 8), (128, 9), (-128, 8), (-129, 9), (2**31 - 1, 32)],
)
def test_a_bias_of_the_widest_that_is_held_fits(monkeypatch, bias, width):
    """Two's complement: n bits hold -2**(n - 1) to 2**(n - 1) - 1."""
    widest = rescale_of(bias, 1.0)
    monkeypatch.setattr(
        "celosia.generators.quantize.multipliers.rebuilt", lambda _, held: held(widest)
    )
    decoder = DECODERS["llama"]
    narrowed_parameters(decoder, HELD.replace(bias_width=width))
    if width > 1:
        message = f"has biases of {width} bits, but bias_width is {width - 1}$"
        with pytest.raises(InputError, match=message):
            narrowed_parameters(decoder, HELD.replace(bias_width=width - 1))


def test_multipliers_are_rounded_to_those_that_are_held():
    multiplier = np.array([(1 << 31) - 1, (1 << 30) + 0x8000, -(1 << 30) - 0x7FFF, 0])
    size, shift = rounded(multiplier, np.array([-3, 0, 2, 0]), 16)
    assert size.tolist() == [1 << 30, (1 << 30) + 0x10000, -(1 << 30), 0]
    assert shift.tolist() == [-2, 0, 2, 0]
    same = rounded(multiplier, shift, 0)
    assert same[0] is multiplier


def test_half_of_a_vocabulary_lies_in_each_of_two_banks():
    # In one bank it would leave the other one to all other buffers.
    decoder = random_decoder(replace(LLAMA, vocabulary=200))
    config = HELD.replace(scratchpad_bytes=1 << 14, scratchpad_banks=2)
    start = middle_banks_address(200, 24, config)
    assert start is not None
    assert abs(config.bank_bytes - start - 24 * 100) < 48
    assert (config.bank_bytes - start) % 24 == 0
    larger = config.replace(scratchpad_bytes=1 << 15)
    assert middle_banks_address(200, 24, larger) is None
    assert middle_banks_address(200, 24, config.replace(scratchpad_banks=1)) is None
    program = compile_text(decoder, config, context=40)
    session = TextSession(program, "golden")
    for tokens in ([3, 199, 99], [100, 101, 97, 98]):
        session.begin()
        session.take(tokens)
        assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
    # There is room for all others on both sides, as in twice the memory.
    other = compile_text(decoder, larger, context=40)
    cycles = other.expect(other.run(39), 8).cycles
    assert program.expect(program.run(39), 8).cycles == cycles


def test_pairs_take_half_the_slots():
    plain = compile_text(DECODERS["llama"], PAIRS, context=40)
    paired = compile_text(DECODERS["llama_int4"], PAIRS, context=40)
    # Two layers, three key heads: 10 tiles of 4 keys and 7 of 6 values each; 2 pairs of heads.
    assert plain.slots - paired.slots == 2 * (3 - 2) * (10 + 7)
    costs = [program.expect(program.run(30), 8).cycles for program in (paired, plain)]
    assert costs[0] <= costs[1]


def test_values_alone_in_pairs():
    options = Quantization(texts=2, length=24, places=80, kv_bits=4, whole=4)
    decoder = untrained(LLAMA, options)
    program = compile_text(decoder, PAIRS.replace(low_rows=0), context=40)
    plain = compile_text(DECODERS["llama"], PAIRS, context=40)
    assert plain.slots - program.slots == 2 * (3 - 2) * 7
    session, tokens = TextSession(program, "golden"), tokens_of(decoder, 20)
    session.take(tokens[:-1])
    session.step(tokens[-1])
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"packed_cache": False, "low_rows": 0},
            "Model llama keeps keys and values of 4 bits in pairs, which needs packed_cache and "
            "weight_depth above 2, but packed_cache is false and weight_depth 2048",
        ),
        (
            {"low_rows": 0},
            "Model llama keeps 8 bits of 2 columns of each key head of 4, which needs low_rows 2 "
            "and 4 rows above them, but low_rows is 0 and 4 rows are",
        ),
    ],
)
def test_pairs_that_have_no_room(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(DECODERS["llama_int4"], PAIRS.replace(**changes), context=40)


def test_pairs_of_heads_that_tiles_cut():
    message = (
        "Model gpt keeps keys and values of 4 bits in pairs, which needs heads of at most cols "
        "columns or a multiple, but heads have 16 and cols is 6"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(DECODERS["gpt_int4"], PAIRS.replace(cols=6, lanes=6), context=40)


@pytest.mark.parametrize(
    ("config", "simulator"),
    [
        # The machine of the test on the circuit in test_kv_blocks.py.
        (BLOCKS, "verilator"),
        *longer((PAIRS.replace(trace=True, weight_depth=1024), "icarus")),
    ],
    ids=["with blocks", "pairs"],
)
def test_the_circuit_keeps_int4(config, simulator):
    model = LLAMA.replace(
        name="mini", vocabulary=19, positions=16, dim=8, layers=1, heads=2, kv_heads=1, ffn=12
    )
    decoder = random_decoder(model, kv_bits=4)
    session = TextSession(compile_text(decoder, config, context=16), simulator)
    tokens = tokens_of(decoder, 9)
    session.take(tokens[:6])
    for token in tokens[6:]:
        session.step(token)
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
    assert sum(turn.mismatches for turn in (session.setup, *session.turns)) == 0
    assert sum(turn.tensors for turn in session.turns) > 70
