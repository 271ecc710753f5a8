"""Norms and softmaxes that leave rows' factors to the products behind: exact, as good as others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.support.cache import ROOT
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.graph.operations import Linear, Norm
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.fitting import FitError, remedy
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.studies.perplexity import measure, read_texts
from celosia.sim.norm import normalize, row_factors
from celosia.sim.requantize import times_factor
from celosia.sim.softmax import row_weights, softmax
from celosia.tb.models.text_session import TextSession
from celosia.tb.models.texts_session import TextsSession
from tests.support.longer import longer
from tests.support.text_cases import LLAMA, RESIDENT, TEXT

KEPT = TEXT.replace(
    **RESIDENT, multiplier_width=16, row_factors=2 * (1 + LLAMA.heads), scratchpad_bytes=1 << 17
)
STORIES = ROOT / "examples" / "stories260k"


@pytest.mark.parametrize("n", [1, 2, 7, 64, 8192])
def test_factors_are_the_norms(n: int) -> None:
    rng = np.random.default_rng(n)
    x, r = (
        rng.integers(-(1 << 15), 1 << 15, (9, n)) >> rng.integers(16, size=(9, 1)) for _ in "ab"
    )
    x[0], r[0] = 0, 0
    eps = int(rng.integers(1 << 20)) * (n % 2)
    mantissa, right, s = row_factors(x, r, eps=eps)
    value, same = normalize(x, r, rms=True, eps=eps)
    np.testing.assert_array_equal(s, same)
    half = (np.int64(1) << right) >> 1
    np.testing.assert_array_equal((n * s.astype(np.int64) * mantissa + half) >> right, value)


@pytest.mark.parametrize("n", [1, 2, 7, 96, 512])
def test_weights_by_their_sum_are_probabilities(n: int) -> None:
    rng = np.random.default_rng(n)
    q = rng.integers(-(1 << 15), 1 << 15, (9, n)) >> rng.integers(16, size=(9, 1))
    keep = rng.random((9, n)) < rng.choice([0.0, 0.5, 1.0], (9, 1))
    weights, mantissa, right = row_weights(q, keep)
    assert np.all(weights.max(axis=1) == keep.any(axis=1) * (1 << 24))
    probabilities = softmax(q, keep)
    assert np.all(weights[~keep] == 0)
    # Weights are cut to 24 bits, and sums of as many are taken over 28.
    error = np.abs(weights * mantissa / 2.0**right - probabilities)
    assert error.max() < 2
    assert not np.any(mantissa[~keep.any(axis=1)])


def test_a_factor_makes_a_multiplier_at_most_2_to_the_minus_14_too_small() -> None:
    rng = np.random.default_rng(5)
    multiplier = rng.integers(1 << 30, 1 << 31, 4000) >> 16 << 16
    multiplier *= rng.choice([-1, 1], 4000)
    shift, right = rng.integers(-12, 4, 4000), rng.integers(4, 20, 4000)
    mantissa = rng.integers(1 << 16, 1 << 17, 4000)
    wanted = multiplier * 2.0 ** (shift - 31) * mantissa * 2.0**-right
    product, shifts = times_factor(multiplier, shift, mantissa, right)
    assert not np.any(product & 0xFFFF)
    assert np.all((np.abs(product) >= 1 << 30) & (np.abs(product) <= 1 << 31))
    error = np.abs(product * 2.0 ** (shifts - 31.0) / wanted - 1)
    assert error.max() <= 2.0**-14
    assert times_factor(1 << 30, 0, 0, 31)[0] == 0
    assert times_factor(1 << 30, [30, -31], 1 << 16, [0, 31])[1].tolist() == [30, -31]


def test_a_decoder_is_as_good_as_with_other_norms() -> None:
    source = load_text(str(STORIES / "stories260K.bin"), STORIES / "tok512.bin")
    texts = read_texts(STORIES / "evaluation.txt")[:1]
    options = Quantization(texts=2, length=160, folded=True)
    plain, deferred = (
        measure(source, source.quantize(choice), texts, slots=96, sinks=4)
        for choice in (options, replace(options, deferred=True))
    )
    assert deferred.nll < plain.nll + 0.02
    assert deferred.nll < deferred.float_nll + 0.06


def llama(**changes: Any) -> Decoder:
    options = {"texts": 1, "length": 16, "folded": True, "deferred": True} | changes
    return untrained(LLAMA, Quantization(**options))


@pytest.mark.parametrize(
    ("sim", "texts", "lanes"),
    [("golden", 1, 8), ("golden", 2, 8), ("golden", 2, 2), *longer(("verilator", 2, 2))],
)
def test_a_machine_computes_what_the_reference_does(sim: str, texts: int, lanes: int) -> None:
    # With fewer lanes than a head has columns heads are tile columns of a drain, not rows.
    decoder = llama()
    norms = [op for op in decoder.ops if isinstance(op, Norm)]
    assert all(op.deferred for op in (*norms, *decoder.attentions))
    # Queries, keys, values, gate and up of each layer, and the head.
    assert sum(op.factors for op in decoder.ops if isinstance(op, Linear)) == 5 * LLAMA.layers + 1
    registered = sim == "verilator"
    config = KEPT.replace(registered=registered, lanes=lanes, cols=min(KEPT.array.cols, 2 * lanes))
    program = compile_text(decoder, config, context=12, sinks=2, texts=texts)
    tokens = np.random.default_rng(3).integers(LLAMA.vocabulary, size=(14, texts)).tolist()
    session = (TextSession if texts == 1 else TextsSession)(program, sim)
    for column in tokens:
        if isinstance(session, TextsSession):
            session.advance(column, lambda text: session.choose())
        else:
            session.step(*column)
            session.choose()
    assert [turn.mismatches for turn in session.turns] == [0] * len(tokens)
    assert min(turn.tensors for turn in session.turns) > 0
    if sim != "golden":
        predicted = program.expect(program.run(13), 8).cycles
        assert abs(predicted / session.turns[-1].cycles - 1) < 0.2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"folded": False}, "Deferred norms need folded True, not False"),
        ({"kv_bits": 4}, "Deferred norms need kv_bits 8, not 4"),
        ({"weights": "int4"}, "Deferred norms need weights int8, not int4"),
        ({"activations": "mixed"}, "Deferred norms need activations int8, not mixed"),
    ],
)
def test_other_integers_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        llama(**changes)


def test_layer_norms_are_refused() -> None:
    with pytest.raises(InputError, match="need norm rmsnorm and source_layers 0, but model tales"):
        load_text("tales").quantize(Quantization(texts=1, folded=True, deferred=True))


def test_a_machine_has_norms_of_one_kind() -> None:
    for decoder, config, message, fits in (
        (llama(), KEPT.replace(row_factors=9), "norms and softmaxes of 14 rows, but", 14),
        (llama(deferred=False), KEPT, "or softmaxes that are not deferred, but row_factors is", 0),
    ):
        with pytest.raises(FitError, match=message) as error:
            compile_text(decoder, config, context=12, texts=2)
        assert remedy(error.value) == f"it fits with row_factors={fits}"


def test_the_commands_take_and_refuse_them(celosia: Any, tmp_path: Path) -> None:
    text = (STORIES / "evaluation.txt").read_text(encoding="utf-8")[:400]
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    words = (str(STORIES / "stories260K.bin"),)
    command = "evaluate", *words, "--text", str(tmp_path / "text.txt"), "--count", "1"
    command += "--calibration", "1", "--quantize", "norms=deferred", "--json"
    code, output, errors = celosia(*command, "--quantize", "weights=int4")
    assert (code, output, errors) == (
        2,
        "",
        "celosia: Deferred norms need weights int8, not int4\n",
    )
    code, output, _ = celosia(*command)
    report = json.loads(output)
    assert (code, output.count("\n")) == (0, 1)
    assert report["nll"] < report["float_nll"] + 0.1
