"""Decoders' programs on the golden machine, against the integer decoder in NumPy."""

import re
from dataclasses import replace

import numpy as np
import pytest

from arch.errors import InputError
from arch.instruction import unpack
from arch.isa import Opcode
from arch.presets import PRESETS
from generators.frontend.text_description import TextDescription
from generators.graph import Linear, Norm
from generators.lower.residence import Cache
from generators.program.allocate import across
from generators.quantize.multipliers import rounded
from generators.quantize.options import Quantization
from generators.reference.cache import KvCache
from generators.reference.integers import evaluate
from generators.text_compiler import compile_text
from generators.text_shapes import untrained
from sim.checker import check
from sim.interpreter import Interpreter
from tb.text_session import TextSession

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
    found = CONFIGS | {"pairs": PAIRS}
    return [pytest.param(model, found[name], id=f"{model}-{name}") for model, name in made]


def tokens_of(decoder, count, seed=2):
    rng = np.random.default_rng(seed)
    return [int(token) for token in rng.integers(0, decoder.description.vocabulary, count)]


@pytest.mark.parametrize(("name", "config"), machines(*CONFIGS))
def test_steps_and_chunks_are_the_golden_models(name, config):
    decoder = DECODERS[name]
    program = compile_text(decoder, config, context=40)
    assert program.resident == (config.weight_depth > 2)
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
        found = dict(zip(names, wrote, strict=True))
        wanted = evaluate(decoder, [token], cache)
        for layer in range(decoder.description.layers):
            for kind in ("key", "query", "value"):
                tensor = f"layers.{layer}.{kind}"
                assert np.array_equal(found[tensor], wanted[tensor])
                if kind != "query":
                    ends += [found[tensor].min(), found[tensor].max()]
    assert -128 <= min(ends) <= -100
    assert 90 <= max(ends) < 128


@pytest.mark.parametrize(("name", "config"), machines("streamed", "fused"))
@pytest.mark.parametrize("sinks", [0, 3])
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
    found = [op.rescale for op in program.decoder.ops if isinstance(op, Linear)]
    assert sum(len(one.multiplier) for one in found) == words
    assert not any(np.any(one.multiplier & 0xFFFF) for one in found)
    session, tokens = TextSession(program, "golden"), tokens_of(decoder, 12)
    session.take(tokens)
    assert np.array_equal(session.logits(), evaluate(program.decoder, tokens)["logits"][-1])
    for changes, message in (
        ({"bias_width": 2}, r"has biases of \d+ bits, but bias_width is 2"),
        ({"pre_depth": 3}, r"accumulators with \d+ parameter words, but pre_depth is 3"),
        ({"weight_depth": 2}, "needs multiplier_width 32, which only decoders whose weights stay"),
    ):
        with pytest.raises(InputError, match=message):
            compile_text(decoder, held.replace(**changes), context=40)


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
    start = across(200, 24, config)
    assert start is not None
    assert abs(config.bank_bytes - start - 24 * 100) < 48
    assert (config.bank_bytes - start) % 24 == 0
    larger = config.replace(scratchpad_bytes=1 << 15)
    assert across(200, 24, larger) is None
    assert across(200, 24, config.replace(scratchpad_banks=1)) is None
    program = compile_text(decoder, config, context=40)
    session = TextSession(program, "golden")
    for tokens in ([3, 199, 99], [100, 101, 97, 98]):
        session.begin()
        session.take(tokens)
        assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
    # There is room for all others on both sides, as in twice the memory.
    cycles = compile_text(decoder, larger, context=40).predict(39, 8).cycles
    assert program.predict(39, 8).cycles == cycles


def test_pairs_take_half_the_slots():
    plain = compile_text(DECODERS["llama"], PAIRS, context=40)
    paired = compile_text(DECODERS["llama_int4"], PAIRS, context=40)
    # Two layers, three key heads: 10 tiles of 4 keys and 7 of 6 values each; 2 pairs of heads.
    assert plain.slots - paired.slots == 2 * (3 - 2) * (10 + 7)
    costs = [program.predict(30, 8).cycles for program in (paired, plain)]
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


def test_the_circuit_keeps_int4():
    model = LLAMA.replace(
        name="mini", vocabulary=19, positions=16, dim=8, layers=1, heads=2, kv_heads=1, ffn=12
    )
    decoder = random_decoder(model, kv_bits=4)
    config = PAIRS.replace(trace=True, weight_depth=1024)
    session = TextSession(compile_text(decoder, config, context=16), "icarus")
    tokens = tokens_of(decoder, 9)
    session.take(tokens[:6])
    for token in tokens[6:]:
        session.step(token)
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
    assert sum(turn.mismatches for turn in (session.setup, *session.turns)) == 0
    assert sum(turn.tensors for turn in session.turns) > 70


@pytest.mark.parametrize(("name", "config"), machines(*CONFIGS)[: len(CONFIGS)] + machines()[:1])
def test_tokens_order_every_hazard(name, config):
    program = compile_text(DECODERS[name], config, context=40)
    assert all(check(fill.words, config) > 0 for fill in program.setup)
    for name, position, rows in (("step", 0, 1), ("step", 39, 1), ("chunk", 7, program.rows)):
        registers = [0] * 16
        for register, value in program.registers(position, rows).items():
            registers[register] = value
        assert check(program.words, config, program.entries[name].pc, registers) > 20
    assert check(program.words, config, program.entries["words"].pc) > 0
    stores = check(program.words, config, program.entries["logits"].pc)
    assert stores == (config is not CONFIGS["passing"])


def opcodes(program, name):
    ends = [*sorted(entry.pc for entry in program.entries.values()), len(program.words)]
    first = program.entries[name].pc
    words = program.words[first : ends[ends.index(first) + 1]]
    return [instruction.opcode for instruction in unpack(words)]


def exact_words(program):
    """Return the words of a program whose scores behind 20 tokens are the integer reference's."""
    session, tokens = TextSession(program, "golden"), tokens_of(program.decoder, 20)
    session.take(tokens[:-1])
    session.step(tokens[-1])
    assert np.array_equal(session.logits(), evaluate(program.decoder, tokens)["logits"][-1])
    registers = [0] * 16
    for register, value in program.registers(19, 1).items():
        registers[register] = value
    assert check(program.words, program.config, program.entries["step"].pc, registers) > 50
    return len(program.words)


@pytest.mark.parametrize("kv_bits", [8, 4])
def test_layers_are_iterations_of_a_loop(kv_bits):
    found = []
    for layers in (2, 5):
        decoder = random_decoder(LLAMA.replace(layers=layers), kv_bits)
        config = (CONFIGS["fused"] if kv_bits == 8 else PAIRS).replace(table_slots=6)
        program = compile_text(decoder, config, context=40)
        for name in ("step", "chunk"):
            assert opcodes(program, name).count(Opcode.LOOP) == 1
        found.append(exact_words(program))
    assert found[0] == found[1]


def test_layers_and_scores_from_outside_are_iterations_of_loops():
    found = []
    for layers, vocabulary in ((3, 450), (5, 450), (3, 898)):
        decoder = random_decoder(LLAMA.replace(layers=layers, vocabulary=vocabulary))
        config = CONFIGS["passing"]
        program = compile_text(decoder, config, context=40)
        for name in ("step", "chunk"):
            assert opcodes(program, name).count(Opcode.LOOP) == 2
        found.append(exact_words(program))
    assert len(set(found)) == 1


def test_layers_that_differ_in_more_than_steps_are_written_out():
    decoder = DECODERS["llama"]
    # A norm with one parameter for all columns has a flag that the other layers' have not.
    layers = [list(ops) for ops in decoder.layers]
    place = max(i for i, op in enumerate(layers[-1]) if isinstance(op, Norm))
    norm = layers[-1][place]
    layers[-1][place] = replace(norm, rescale=norm.rescale.columns(0, 1))
    mixed = replace(decoder, layers=tuple(map(tuple, layers)))
    program = compile_text(mixed, CONFIGS["fused"], context=40)
    assert Opcode.LOOP not in opcodes(program, "step")
    session, tokens = TextSession(program, "golden"), tokens_of(mixed, 9)
    session.take(tokens)
    assert np.array_equal(session.logits(), evaluate(mixed, tokens)["logits"][-1])


def test_norms_with_folded_gains_have_one_factor():
    decoder = untrained(LLAMA, Quantization(texts=2, length=24, folded=True))
    norms = [op for ops in decoder.layers for op in ops if isinstance(op, Norm)]
    assert all(op.rescale.per_tensor for op in norms)
    session = TextSession(compile_text(decoder, CONFIGS["fused"], context=40), "golden")
    tokens = tokens_of(decoder, 9)
    session.take(tokens)
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])


def test_incremental_decoding_saves_products():
    decoder = DECODERS["llama"]
    program = compile_text(decoder, CONFIGS["fused"], context=40)
    session = TextSession(program, "golden")
    tokens = tokens_of(decoder, 12)
    session.take(tokens[:-1])
    step = session.step(tokens[-1]).counters["macs"]
    session.begin()
    whole = session.take(tokens).counters["macs"]
    assert step == program.macs(11)
    model = decoder.description
    layers = program.macs(11) - model.vocabulary * model.dim
    assert whole > 10 * layers


def test_the_cache_keeps_sinks_and_the_last():
    cache = Cache(capacity=7, sinks=2)
    assert [cache.place(p) for p in range(14)] == [0, 1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 2, 3]
    assert [cache.count(p) for p in (0, 5, 6, 7, 100)] == [1, 6, 7, 7, 7]


def refuses(message, decoder="llama", config=CONFIGS["fused"], **options):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(DECODERS[decoder], config, **{"context": 40, **options})


def test_refusals():
    small = CONFIGS["fused"]
    refuses("Context must be at least 1 token, not 0", context=0)
    refuses("Sinks must be from 0 to 3, which is less than the context, not 4", context=4, sinks=4)
    refuses("Tokens of a chunk must be from 1 to 14, not 0", rows=0)
    refuses(
        "Context must be at most the 80 tokens that model llama was made for, not 81", context=81
    )
    refuses(
        "Model llama needs max_row of at least 40, but configuration resident has 39",
        config=small.replace(max_row=39),
    )
    refuses(
        "Model llama needs max_k of at least 44, but configuration resident has 43",
        config=small.replace(max_k=43),
    )
    refuses(
        "Model llama needs the unit rotary, which configuration resident leaves out",
        config=small.replace(rotary=False),
    )
    refuses(
        "Model llama has operands of 8 bits, but operand_width is 7",
        config=small.replace(operand_width=7),
    )
    refuses(
        "Model llama with its keys and values needs 245 weight slots of 8 x 8, but weight_depth "
        "is 100",
        config=small.replace(weight_depth=100),
    )
    refuses(
        "Model llama needs more parameter words than param_depth = 60",
        config=small.replace(param_depth=60),
    )
    refuses(
        "Model llama needs 12 parameter words at once, but param_depth is 11",
        config=CONFIGS["passing"].replace(param_depth=11, cols=4, lanes=2),
    )
    refuses(
        "Model llama needs more activation tables than table_slots = 1",
        config=small.replace(table_slots=1),
    )
    refuses(
        "Model llama needs 44 accumulator rows or more, but acc_depth is 26",
        config=small.replace(acc_depth=26),
    )
    refuses(
        "Model llama needs 548 program words, but program_depth is 540",
        config=small.replace(program_depth=540),
    )
    refuses(
        "Model llama needs 7864 scratchpad bytes and 1504 of them in one bank, but "
        "scratchpad_bytes is 4096 in banks of 1024",
        config=small.replace(scratchpad_bytes=4096),
    )
    refuses(
        "Model llama comes to the chip in pieces of 256 bytes, but external memory has 255",
        memory_bytes=255,
    )
    needed = compile_text(DECODERS["llama"], CONFIGS["streamed"], context=40).memory_bytes
    # With less than that, rows stay in the scratchpad.
    found = compile_text(
        DECODERS["llama"], CONFIGS["streamed"], context=40, memory_bytes=needed - 1
    )
    needed = found.memory_bytes
    refuses(
        f"Model llama needs {needed} bytes of external memory, but it has {needed - 1}",
        config=CONFIGS["streamed"],
        memory_bytes=needed - 1,
    )
