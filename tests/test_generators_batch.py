"""Several inputs in one run: the integers of each alone, in fewer cycles."""

import re

import numpy as np
import pytest

from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.lower.encoder_compiler import Options, compile_model, compile_quantized
from celosia.generators.runtime.golden import GoldenModel
from celosia.running import run_files
from celosia.sim.checker import check
from celosia.tb.machine.memory_timing import FAR
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.whole_model import differing
from celosia.tb.verify.random_models import random_inputs, random_weights

SMALL = PRESETS["small"]
SHAPED = {"norm": "none", "final_norm": False, "skip": False, "shaped": True, "values": False}
MODEL = ModelDescription(name="toy", tokens=6, features=3, dim=16, layers=2, heads=4, ffn=20)


def run_case(model, config, batch, together=1):
    rng = np.random.default_rng(5)
    weights, inputs = random_weights(rng, model), random_inputs(rng, model)[:batch]
    alone = compile_model(model, weights, inputs, config, Options(search=False))
    several = compile_quantized(alone.graph, config, Options(search=together > 1, batch=batch))
    assert check(several.words, config) > 0
    values, golden = np.concatenate(inputs), GoldenModel(several)
    wrong, compared = differing(several, golden.tensors(values), values)
    assert (wrong, compared > 10) == ([], True)
    golden_alone = GoldenModel(alone)
    expected = np.concatenate([golden_alone.run(sample)[0] for sample in inputs])
    np.testing.assert_array_equal(golden.run(values)[0], expected)
    assert several.macs() == batch * alone.macs()
    return several


@pytest.mark.parametrize(
    ("changes", "config"),
    [
        ({}, {}),
        ({"placement": "post", "kv_heads": 2}, {}),
        (SHAPED, {}),
        ({"pooling": "none", "classes": 5}, {"fused": False}),
        ({"classes": 3, "final_norm": False}, {"acc_depth": 40}),
        ({}, {"program_depth": 1400}),
    ],
    ids=["pre", "post, transposed copy", "shaped", "no pooling", "few sums", "loops"],
)
def test_each_input_has_the_integers_of_a_run_of_its_own(changes, config) -> None:
    compiled = run_case(MODEL.replace(**changes), SMALL.replace(**config), 3)
    assert (compiled.loops > 0) == ("program_depth" in config)


def test_one_softmax_takes_the_scores_of_several_heads() -> None:
    compiled = run_case(MODEL, SMALL, 2, together=4)
    rows = [
        instruction.operand("m").immediate
        for instruction in unpack(compiled.words)
        if instruction.opcode == Opcode.SOFTMAX
    ]
    assert max(rows) >= 2 * MODEL.tokens


@pytest.mark.parametrize(
    ("changes", "batch", "message"),
    [
        ({}, 0, "Inputs of a batch must be at least 1, not 0"),
        ({"variable": True}, 2, "Model toy has variable true, which excludes a batch of 2"),
        ({"class_token": True}, 2, "Model toy has class_token true, which excludes a batch of 2"),
        (
            {"pooling": "class", "embedding": "tokens", "vocabulary": 9, "features": 0},
            3,
            "Model toy has pooling class, which excludes a batch of 3",
        ),
    ],
)
def test_models_whose_rows_are_not_alike_have_no_batch(changes, batch, message) -> None:
    model, rng = MODEL.replace(**changes), np.random.default_rng(0)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        compile_model(
            model,
            random_weights(rng, model),
            random_inputs(rng, model),
            SMALL,
            Options(batch=batch),
        )


@pytest.mark.slow
def test_digits_fill_the_array() -> None:
    alone = run_files("digits", SMALL, "verilator", count=2, timing=FAR).figures
    assert alone["mismatches"] == 0
    assert alone["cycles_per_inference"] <= 7450
    options = Options(batch=8)
    ran = run_files("digits", SMALL, "verilator", count=9, options=options, timing=FAR)
    several = ran.figures
    assert several["mismatches"] == 0
    assert several["count"] == 9
    # The second run has one image eight times: useful products are those of nine.
    assert several["utilization"] >= 0.85 * 9 / 16
    for report in (alone, several):
        expected = report["predicted_cycles"]
        runs = 16 / 9 if report is several else 1
        assert abs(runs * expected / report["cycles_per_inference"] - 1) <= 0.03


@pytest.mark.long  # the test before has it on the circuit, within 3% of the prediction
def test_a_batch_of_digits_is_predicted_to_fill_the_array() -> None:
    compiled = compile_digits("digits", SMALL, Options(batch=8))
    assert compiled.macs() / SMALL.elements >= 0.85 * compiled.expect(compiled.run(), 40).cycles
