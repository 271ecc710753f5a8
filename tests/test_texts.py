"""Two texts of a decoder in every run, against each text alone."""

import re
from dataclasses import replace

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.instruction import Instruction, pack, unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.lower.equipment import with_packed_cache
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.program.executable import SCORES
from celosia.generators.program.predict import predict
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.sim.checker import check
from celosia.tb.machine.simulators import make_machine
from celosia.tb.models.texts_session import TextsSession
from tests.support.decoders import (
    CONFIGS,
    DECODERS,
    HELD,
    LLAMA,
    machines,
    random_decoder,
    tokens_of,
)
from tests.support.longer import longer, shorter
from tests.support.text_cases import TEXT
from tests.test_kv_blocks import PLAIN, narrow
from tests.test_rows_outside import CASES as OUTSIDE
from tests.test_rows_outside import DECODERS as LARGE
from tests.test_rows_outside import FEW, SMALL, SQUARE
from tests.test_wide_text import CASES as WIDE
from tests.test_wide_text import compiled

ROOMY = [name for name in CONFIGS if name != "passing"]
DEEP = {"table_slots": 8, "param_depth": 1024}
NARROW = {
    name: CONFIGS[name].replace(rows=3, cols=2, lanes=2, weight_depth=8192, acc_depth=4096, **DEEP)
    for name in ("fused", "resident")
}
"""Machines on which products of one text's rows are long enough to be beside another's norm."""
LATE = {"registered": True, "packed": True}
"""Changes of a machine whose tokens come later, and whose columns share multipliers."""
CHECKED = HELD.replace(**SMALL, **SQUARE, registered=True, trace=True)
"""A machine of tests on the circuit, here and in test_rows_outside.py."""
ODD = {"heads": 5, "kv_heads": 1, "head_dim": 6, "dim": 15}
REGISTERED = CONFIGS["fused"].replace(registered=True, trace=True)
NESTED = CONFIGS["streamed"].replace(weight_formats="int4,high2,mid2", argmax=True)


def go_on(program, machine, counts, late, bits=None):
    """Take tokens of two texts, the second ``late`` runs behind, and compare all scores.

    Each text rests behind its last token, and before its first one. Nested weights are read at so
    many bits, of which each plane has products of its own.
    """
    decoder, slots = program.graph_at(bits or 8), program.cache.capacity
    session = TextsSession(program, machine)
    session.bits = bits or 8
    caches = [KvCache(slots=slots, sinks=program.cache.sinks) for _ in counts]
    texts = [tokens_of(decoder, count, seed) for seed, count in enumerate(counts)]

    def next_tokens(run):
        places = run, run - late
        return [
            text[at] if 0 <= at < len(text) else None
            for at, text in zip(places, texts, strict=True)
        ]

    for run in range(max(counts[0], counts[1] + late)):
        inputs = next_tokens(run)

        def choose(text, tokens=inputs):
            wanted = evaluate(decoder, [tokens[text]], caches[text])["logits"][0]
            assert np.array_equal(session.logits(), wanted), (session.lengths, text)
            assert session.choose() == np.argmax(wanted)
            return int(np.argmax(wanted))

        chosen = session.advance(inputs, choose)
        assert [token is None for token in chosen] == [token is None for token in inputs]
        places = [max(length - 1, 0) for length in session.lengths]
        if bits is None:
            assert session.turns[-1].counters["macs"] == sum(map(program.macs, places))
    assert session.lengths == list(counts)
    return session


@pytest.mark.parametrize(
    ("name", "config", "counts", "late", "sinks"),
    shorter(machines(*ROOMY), [((9, 14), 0, 0), ((27, 11), 6, 3), ((1, 1), 3, 0)]),
)
def test_each_text_is_as_alone(name, config, counts, late, sinks):
    program = compile_text(DECODERS[name], config, context=11, sinks=sinks, texts=2)
    assert program.resident == (config.array.weight_depth > 2)
    session = go_on(program, "golden", counts, late)
    assert sum(turn.mismatches for turn in session.turns) == 0


@pytest.mark.parametrize(
    ("context", "changes"), [(1, {}), (2, ODD), (7, {}), *longer((1, ODD), (2, {}), (7, ODD))]
)
def test_small_and_odd_sizes(context, changes):
    model = LLAMA.replace(name="odd", vocabulary=13, ffn=9, layers=1, **changes)
    for config in (HELD, CONFIGS["odd"], CONFIGS["streamed"]):
        program = compile_text(random_decoder(model), config, context=context, texts=2)
        go_on(program, "golden", (context + 2, context), 1)


def norm_rows(program):
    """Return the rows of each norm of a step's program, in the order of its words."""
    begin = program.entries["step"].pc
    norms = [norm for norm in unpack(program.words[begin:]) if norm.opcode == Opcode.NORM]
    return [norm.operand("m").immediate for norm in norms]


@pytest.mark.parametrize(
    ("name", "config", "layers"),
    shorter([pytest.param(*case, id=case[0]) for case in NARROW.items()], [(1,), (3,), (5,)]),
)
def test_norms_of_texts_are_apart_where_products_beside_them_are_long(name, config, layers):
    model = LLAMA.replace(name="deep", layers=layers)
    program = compile_text(random_decoder(model), config, context=11, texts=2)
    # Before the layers, and in their loop's body behind attention and behind the MLP.
    assert norm_rows(program) == [1] * 6
    go_on(program, "golden", (9, 7), 1)
    wide = compile_text(random_decoder(model), CONFIGS[name].replace(**DEEP), context=11, texts=2)
    assert set(norm_rows(wide)) == {2}
    registers = [0] * 16
    for register, value in program.steps([8, 2])[0].registers.items():
        registers[register] = value
    assert check(program.words, config, program.entries["step"].pc, registers) > 20


@pytest.mark.parametrize("kind", ["gpt", "corrections", "short head"])
def test_norms_that_are_apart_of_other_models(kind):
    config, decoder = NARROW["fused"], DECODERS["gpt"]
    if kind == "corrections":
        config = config.replace(weight_formats="int4")
        options = Quantization(texts=2, length=24, weights="int4", low_rank=3)
        decoder = untrained(LLAMA, options)
    if kind == "short head":
        decoder = random_decoder(LLAMA.replace(name="short", vocabulary=20))
    program = compile_text(decoder, config, context=9, texts=2)
    assert set(norm_rows(program)) == {2 if kind == "short head" else 1}
    go_on(program, "golden", (8, 4), 1)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_nested_weights(bits):
    options = Quantization(texts=2, length=24, places=80, weights="nested")
    program = compile_text(untrained(LLAMA, options), NESTED, context=9, texts=2)
    go_on(program, "golden", (8, 5), 1, bits)


@pytest.mark.parametrize("name", [name for name in WIDE if name != "passing"])
def test_activations_of_16_bits(name):
    go_on(compiled(*WIDE[name], texts=2), "golden", (6, 4), 1, bits=8)


@pytest.mark.parametrize("changes", [{}, {"weight_depth": 1024}])
def test_corrections(changes):
    options = Quantization(texts=2, length=24, weights="int4", low_rank=3)
    program = compile_text(untrained(LLAMA, options), TEXT.replace(**changes), context=9, texts=2)
    go_on(program, "golden", (6, 4), 1, bits=8)


def test_values_that_share_exponents():
    decoder = narrow(LLAMA.replace(kv_heads=2))
    go_on(
        compile_text(decoder, with_packed_cache(PLAIN, decoder), context=9, texts=2),
        "golden",
        (12, 4),
        1,
    )


@pytest.mark.parametrize(
    ("name", "align"),
    [
        *(("streamed", 2), ("resident", 4), ("fused", 2)),
        *longer(("streamed", 4), ("resident", 2), ("fused", 4)),
    ],
)
def test_rows_at_multiples_of_some_bytes(name, align):
    config = CONFIGS[name].replace(scratchpad_align=align)
    go_on(compile_text(DECODERS["llama"], config, context=9, texts=2), "golden", (11, 4), 1)


@pytest.mark.parametrize("case", FEW)
def test_a_vocabulary_outside(case):
    name, config = OUTSIDE[case]
    program = compile_text(LARGE[name], config.replace(**SMALL), context=9, texts=2)
    assert len(program.setup[-1].words) == 1
    session = go_on(program, "golden", (10, 4), 1)
    registers = [0] * 16
    for register, value in program.steps(session.lengths)[0].registers.items():
        registers[register] = value
    assert check(program.words, program.config, program.entries["step"].pc, registers) > 20


def test_zeros_are_skipped():
    decoder = untrained(LLAMA, Quantization(texts=2, length=24), sparsity=0.9)
    config = TEXT.replace(weight_formats="", weight_group=0, sparse_lanes=4)
    program = compile_text(decoder, config, context=9, texts=2, sparse=True)
    session = go_on(program, "golden", (6, 4), 1, bits=8)
    assert session.turns[-1].counters["macs"] < sum(map(program.macs, (5, 3)))


@pytest.mark.parametrize(("name", "config"), machines(*ROOMY))
def test_tokens_order_every_hazard(name, config):
    program = compile_text(DECODERS[name], config, context=19, texts=2)
    for positions in ([0, 0], [18, 0], [3, 40]):
        registers = [0] * 16
        for register, value in program.steps(positions)[0].registers.items():
            registers[register] = value
        assert check(program.words, config, program.entries["step"].pc, registers) > 20
    assert check(program.words, config, program.entries[SCORES].pc) > 1


@pytest.mark.parametrize("layers", [3, 5])
def test_layers_are_iterations_of_a_loop(layers):
    model = LLAMA.replace(name="deep", layers=layers)
    config = HELD.replace(table_slots=8)
    program = compile_text(random_decoder(model), config, context=11, texts=2)
    few = compile_text(random_decoder(LLAMA), config, context=11, texts=2)
    assert abs(len(program.words) - len(few.words)) < 10
    go_on(program, "golden", (9, 7), 1)


@pytest.mark.long
def test_the_circuit_takes_two_texts():
    model = LLAMA.replace(
        name="mini", vocabulary=19, positions=16, dim=8, layers=2, heads=2, kv_heads=1, ffn=12
    )
    config = HELD.replace(trace=True, rows=4, cols=4, lanes=4)
    program = compile_text(random_decoder(model), config, context=6, texts=2)
    session = go_on(program, "icarus", (9, 6), 2)
    assert sum(turn.mismatches for turn in (session.setup, *session.turns)) == 0
    assert sum(turn.tensors for turn in session.turns) > 150


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "context", "cycles", "single"),
    [
        (TEXT, 48, 3745, 2708),
        (CHECKED, 20, 2598, 1634),
        *longer(
            (CONFIGS["streamed"], 48, 3867, 2957),
            (REGISTERED, 48, 1848, 1462),
            (NARROW["resident"].replace(**LATE), 20, 5558, 3458),
            (CONFIGS["fused"], 48, 1663, 1281),
            (NARROW["fused"].replace(**LATE), 20, 5182, 3066),
        ),
    ],
    ids=["streamed", "square", "unfused", "registered", "narrow-resident", "fused", "narrow-fused"],
)
def test_cycles_of_two_texts_and_of_one_are_those_predicted(config, context, cycles, single):
    """A run of both takes the predicted ``cycles``, and so does a run of ``single``."""
    config = config.replace(trace=True)
    program = compile_text(DECODERS["llama"], config, context=context, texts=2)
    session = go_on(program, "verilator", (context + 3, context + 2), 1)
    assert sum(turn.mismatches for turn in (session.setup, *session.turns)) == 0
    timing = session.timing
    places = [context + 2, context + 1]
    expected = program.cycles(program.steps(places), timing.latency, timing.interval)
    assert abs(expected / session.turns[-1].cycles - 1) < 0.005
    alone = compile_text(DECODERS["llama"], config, context=context)
    alone = alone.expect(alone.run(context + 2), timing.latency, timing.interval).cycles
    assert (expected, alone) == (cycles, single)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [CHECKED, *longer(REGISTERED, CONFIGS["fused"].replace(trace=True))],
    ids=["square", "registered", "fused"],
)
def test_softmaxes_in_a_row_take_what_is_predicted(config):
    machine = make_machine(config, "verilator")
    # Without `registered` words are what short rows wait for, by turns a cycle more and less.
    for n in (20 if config.control.registered else 25, 40, 90):
        sizes = {"m": 4, "n": n, "limit": n, "i_stride": 4, "o_stride": 96}
        flags = frozenset({"drain", "per_tensor"})
        check_in_a_row(machine, Instruction(Opcode.SOFTMAX, sizes, flags))


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        CHECKED,
        *longer(
            REGISTERED,
            *(
                PRESETS["story"].replace(name="", registered=registered, cols=8, lanes=lanes)
                for registered in (True, False)
                for lanes in (4, 8)
            ),
        ),
    ],
    ids=[
        "square",
        "registered",
        *(f"story-{name}" for name in ("registered-4", "registered-8", "4", "8")),
    ],
)
def test_drains_in_a_row_take_what_is_predicted(config):
    """A drain more takes its beats, and not the way through the back end."""
    machine = make_machine(config, "verilator")
    for m, n in ((1, 8), (2, 32), (2, 48), (1, 64)):
        for kind in (set(), {"rotate"}, {"add", "wide_out"}):
            sizes = {"m": m, "n": n, "acc_stride": 4, "r_stride": 192, "o_stride": 192}
            sizes |= {"o_addr": config.bank_bytes, "table": 8 if "rotate" in kind else 0}
            flags = frozenset({"per_tensor", *kind})
            each = check_in_a_row(machine, Instruction(Opcode.DRAIN, sizes, flags))
            beats, words = m * n // config.vector.lanes, 12
            assert max(beats, words) <= each <= max(beats, words) + 8, (m, n, kind)


def check_in_a_row(machine, last):
    """Compare predictions of an instruction several times; return the cycles that one takes."""
    first, counted, expected = replace(last, flags=last.flags | {"followed"}), [], []
    for number in range(5):
        words = pack([*[first] * number, last, Instruction(Opcode.HALT)])
        machine.load_program(words)
        counted.append(machine.start().cycles)
        expected.append(predict(words, machine.config).cycles)
    assert np.diff(counted).tolist() == np.diff(expected).tolist(), last
    return (counted[4] - counted[2]) / 2


@pytest.mark.parametrize(
    ("texts", "context", "rows"),
    [
        (1, 19, [(6, False)]),
        (1, 30, [(4, True), (2, False)]),
        (2, 30, [(6, True), (6, False)]),
        (2, 48, [(6, True), (6, False)]),
        (2, 64, [(2, True), (4, True), (4, True), (2, False)]),
    ],
)
def test_softmaxes_are_cut_where_products_beside_them_are_long(texts, context, rows):
    program = compile_text(DECODERS["llama"], CONFIGS["fused"], context=context, texts=texts)
    begin = program.entries["step"].pc
    softmaxes = [
        instruction
        for instruction in unpack(program.words[begin:])
        if instruction.opcode == Opcode.SOFTMAX
    ]
    made = [(softmax.operand("m").immediate, "followed" in softmax.flags) for softmax in softmaxes]
    assert made[: len(rows)] == rows
    # Those of a chunk have as many rows as a register says.
    assert {row for row, _ in made[len(rows) :]} <= {0}


@pytest.mark.parametrize(
    ("name", "config", "options", "message"),
    [
        ("llama", HELD, {"texts": 0}, "Texts of a run must be from 1 to 2, not 0"),
        ("llama", HELD, {"texts": 3}, "Texts of a run must be from 1 to 2, not 3"),
        (
            "gpt",
            HELD,
            {"texts": 2, "recompute": True},
            "Keys and values that are made anew are those of one text, but texts is 2",
        ),
        (
            "llama",
            HELD.replace(weight_depth=250),
            {"texts": 2},
            "Model llama needs 281 weight slots of 8 x 8, but weight_depth is 250",
        ),
        (
            "llama",
            CONFIGS["passing"],
            {"texts": 2},
            "Model llama needs 89 parameter words at once, but param_depth is 40",
        ),
    ],
)
def test_refusals(name, config, options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        compile_text(DECODERS[name], config, context=30, **options)


def test_a_model_that_takes_a_source_is_refused():
    decoder = load_text("numerals").quantize(Quantization(texts=2, length=8))
    message = "Taking two texts at once is for decoders alone, and model numerals takes a source"
    with pytest.raises(InputError, match=f"^{message}$"):
        compile_text(decoder, PRESETS["story"], context=8, texts=2)
