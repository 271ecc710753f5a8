"""Nested weights: their planes, and programs that read 8, 4 or 2 bits of them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.graph.fewer_planes import BITS, with_upper_bits
from celosia.generators.graph.operations import Linear
from celosia.generators.lower.banks import LATENCY
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.nested import MOST, nest, planes
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.generators.studies.perplexity import measure
from celosia.sim.formats import pack, unpack
from celosia.tb.models.text_session import TextSession
from tests.support.text_cases import LLAMA, RESIDENT, TEXT

TALE = (
    "one day a tall crow lost a small shell by the well. then the crow met a frog at the well. the "
    "frog said, i like the shell. they took the shell home and were proud."
)
ANSWERS = str(Path(__file__).parents[1] / "generators/models/numerals/answers.tsv")
NESTED = Quantization(texts=2, length=24, weights="nested")


def test_planes_add_up_and_the_upper_ones_are_the_middles() -> None:
    """Read back from their bytes; fewer bits are off by at most half of the missing bits' range."""
    weight = np.arange(-128, 128).reshape(64, 4)
    total = np.zeros_like(weight)
    for bits, stored in zip((2, 4, 8), planes(weight), strict=True):
        total += unpack(pack(stored.codes, stored.form), 64, stored.form)
        assert np.abs(total - weight).max() == (1 << (8 - bits)) // 2
        assert len(np.unique(total)) == 1 << bits
        assert np.array_equal(total, weight) == (bits == 8)


def test_the_upper_bits_are_chosen_with_the_inputs() -> None:
    """The products of four bits are nearer to those of float64 than those of plain rounding."""
    rng = np.random.default_rng(2)
    inputs = rng.normal(0, 40, (400, 32)) @ rng.normal(0, 0.3, (32, 32))
    weights = rng.normal(0, 1, (24, 32))
    chosen, steps = nest(weights, inputs)
    rounded = np.rint(weights / steps[:, None]).astype(int).T

    def lost(integers) -> float:
        return float(np.sum((inputs @ (weights.T - integers * steps)) ** 2))

    assert np.abs(chosen).max() <= MOST + 1
    assert lost((chosen >> 4) * 16 + 8) < 0.7 * lost((rounded >> 4) * 16 + 8)
    assert lost(chosen) < 0.3 * lost((chosen >> 4) * 16 + 8)


@pytest.mark.parametrize("machine", ["golden", "verilator"])
def test_one_program_in_memory_runs_at_three_precisions(machine) -> None:
    decoder = untrained(LLAMA, NESTED)
    program = compile_text(decoder, TEXT, context=40, rows=2)
    session, cache = TextSession(program, machine), KvCache()
    session.bits = 4
    assert session.take([1, 7]).mismatches == 0
    evaluate(with_upper_bits(decoder, 4), [1, 7], cache)
    read = {}
    for token, bits in ((5, 8), (30, 2), (12, 4), (9, 8)):
        session.bits = bits
        turn = session.step(token)
        assert turn.mismatches == 0
        wanted = evaluate(program.graph_at(bits), [token], cache)["logits"][-1]
        assert np.array_equal(session.logits(), wanted)
        expected = program.expect(program.run(session.length - 1, bits=bits), LATENCY)
        assert machine == "golden" or turn.counters["loaded"] == expected.words_read
        read[bits] = expected.words_read * program.config.mem_bytes
    weights = program.macs_resident
    assert read[8] - read[4] == pytest.approx(weights / 2, rel=0.05)
    assert read[4] - read[2] == pytest.approx(weights / 4, rel=0.05)
    assert [with_upper_bits(decoder, bits).weight_bytes for bits in BITS] == sorted(
        (with_upper_bits(decoder, bits).weight_bytes for bits in BITS), reverse=True
    )


def test_trained_planes_stay_as_they_are() -> None:
    source, options = load_text("tales-nested"), replace(NESTED, texts=4, length=192)
    decoder = source.quantize(options)
    name = "layers.0.up.weight"
    (op,) = (op for op in decoder.ops if op.target.name == "layers.0.hidden")
    assert isinstance(op, Linear)
    weights = source.weights[name]
    assert np.allclose(op.weight.T * np.abs(weights).max(axis=1)[:, None] / MOST, weights)
    losses = [measure(source, with_upper_bits(decoder, bits), [TALE]).nll for bits in BITS]
    assert losses[0] < 0.5
    assert losses[2] < losses[0] + 0.3
    rounded = load_text("tales").quantize(options)
    assert measure(load_text("tales"), with_upper_bits(rounded, 2), [TALE]).nll > 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"group": 16},
            "Weights nested take neither groups nor a correction, but group is 16 and the rank 0",
        ),
        (
            {"low_rank": 2},
            "Weights nested take neither groups nor a correction, but group is 0 and the rank 2",
        ),
    ],
)
def test_options_that_are_refused(changes, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Quantization(weights="nested", **changes)


def test_weights_that_stay_are_refused() -> None:
    message = "Nested weights need weights that come from external memory, but weight_depth is 1024"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_text(untrained(LLAMA, NESTED), TEXT.replace(**RESIDENT), context=40)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("run", "tales", "--quantize", "bits=4"),
            "Bits 4 need weights nested, but they are in int8",
        ),
        (
            ("run", "tales", "--quantize", "weights=nested", "--quantize", "bits=3"),
            "Bits must be 8, 4 or 2, not 3",
        ),
        (
            (
                "evaluate",
                "tales",
                "--quantize",
                "weights=nested",
                "--quantize",
                "bits=8,2",
                "--answers",
                ANSWERS,
            ),
            "Option --quantize bits=8,2 is not for --answers, which computes with all",
        ),
        (
            ("run", "tales", "--quantize", "bits=x"),
            "Option --quantize bits takes numbers with commas between",
        ),
        (
            ("bench", "decode", "--quantize", "weights=nested", "--quantize", "bits=8,4"),
            "A layer is measured with one number of bits, not 2",
        ),
    ],
)
def test_commands_refuse(celosia, words, message) -> None:
    code, output, errors = celosia(*words, "--sim", "golden")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert message in errors
