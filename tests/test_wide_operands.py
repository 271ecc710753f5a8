"""INT16 rows of products in compiled models: attention of 16 bits beside an MLP of 8."""

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.lower.equipment import equipped
from celosia.generators.lower.fitting import FitError
from celosia.generators.quantize.options import Quantization
from celosia.generators.studies.closeness import closeness
from celosia.sim.matmul import WIDE_LONGEST, multiply_wide, parts_of_wide
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.inference import run_inferences
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.compiled_cases import MODEL, random_case
from tests.support.longer import longer
from tests.support.text_cases import WIDE

CONFIG = PRESETS["small"].replace(wide_operands=True)
MIXED = Options(activations="mixed", search=False)
SHAPED = {"norm": "none", "final_norm": False, "skip": False, "shaped": True, "parallel": True}


def test_bytes_make_up_every_operand():
    x = np.arange(-(1 << 15), 1 << 15)
    high, low = parts_of_wide(x)
    assert np.array_equal(256 * high + low, x)
    assert (low.min(), low.max(), high.min(), high.max()) == (-128, 127, -128, 128)


def test_products_of_both_bytes_are_near_and_fit():
    rng = np.random.default_rng(1)
    a, b = rng.integers(-(1 << 15), 1 << 15, (2, 200, 200))
    error = multiply_wide(a, b) - a @ b / 256
    assert np.abs(error).max() <= 64 * 200
    low = np.full((1, WIDE_LONGEST), -(1 << 15))
    assert 0.99 * 2**31 < multiply_wide(low, low.T) < 2**31


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ({}, {}),
        ({"norm": "rmsnorm"}, {"rows": 5, "cols": 3, "lanes": 1, "fused": False}),
        ({"placement": "post", "variable": True}, {}),
        (SHAPED, {"weight_formats": "int4", "program_depth": 1300}),
    ],
    ids=["plain", "odd", "post", "shaped"],
)
def test_programs_have_the_references_integers(model, changes):
    compiled = random_case(1, MODEL.replace(**model), CONFIG.replace(**changes), MIXED)
    products = [
        instruction for instruction in unpack(compiled.words) if instruction.opcode == Opcode.MATMUL
    ]
    inner = {wide: set() for wide in (False, True)}
    for product in products:
        inner["a_wide" in product.flags].add(product.operand("k").immediate)
    # Attention, and what its norm or conversion gives to others; the MLP's second matrix.
    assert MODEL.dim in inner[True]
    assert MODEL.ffn in inner[False] - inner[True]


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize(
    "config",
    [
        # Also the machine of other tests of 16-bit operands.
        WIDE,
        *longer(PRESETS["tiny"].replace(wide_operands=True, trace=True)),
    ],
    ids=["every wide unit", "operands alone"],
)
def test_the_circuit_has_the_golden_machines_tensors(config):
    rng = np.random.default_rng(2)
    inputs, weights = random_inputs(rng, MODEL), random_weights(rng, MODEL)
    compiled = compile_model(MODEL, weights, inputs, config, MIXED)
    figures = run_inferences(compiled, "verilator", inputs[:3], PROMPT).figures()
    assert figures["mismatches"] == 0
    assert figures["tensors"] > 100
    assert figures["predicted_cycles"] == pytest.approx(figures["cycles_per_inference"], rel=0.03)


def test_scores_are_nearer_to_exact_ones():
    partings = closeness("digits", None, CONFIG, 60, lambda _done, _total: None)
    table, mixed = partings["table"], partings["mixed"]
    assert 0 < mixed.score_error <= table.score_error / 4
    assert mixed.largest_score_error <= table.largest_score_error / 4
    assert mixed.square_error < table.square_error


def test_commands_have_the_machine_that_they_ask_for():
    assert equipped(PRESETS["small"], Quantization(activations="mixed")) == CONFIG
    story = equipped(PRESETS["story"], Quantization(activations="mixed"))
    assert (story.array.zero_points, story.accumulators.width) == (True, 32)
    with pytest.raises(InputError, match=r"^No operands has operand_width 4 and zero_points true"):
        equipped(PRESETS["small"].replace(operand_width=4), Quantization(activations="mixed"))


def test_what_cannot_be_mixed_is_refused():
    message = "Model toy needs the unit wide_operands, which configuration small leaves out"
    with pytest.raises(FitError, match=f"^{message}$"):
        random_case(1, MODEL, PRESETS["small"], MIXED)
    message = "Activations mixed need values of 8 bits, but model toy has values false: .*"
    with pytest.raises(InputError, match=f"^{message}$"):
        random_case(1, MODEL.replace(values=False), CONFIG, MIXED)
    message = "Activations mixed sum head_dim .* 511 of these, but model toy has head_dim 512"
    with pytest.raises(InputError, match=f"^{message}$"):
        random_case(1, MODEL.replace(heads=1, kv_heads=1, dim=512, head_dim=512), CONFIG, MIXED)
    with pytest.raises(InputError, match=r"^Activations must be int8 or mixed, not 'int16'$"):
        Quantization(activations="int16")
