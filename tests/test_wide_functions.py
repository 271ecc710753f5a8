"""Functions of 16-bit sums in compiled models: integers, refusals, and nearer to the floats."""

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.integers import evaluate
from celosia.generators.studies.closeness import closeness
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.text_session import TextSession
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.longer import longer
from tests.support.text_cases import WIDE as WIDE_MACHINE

CONFIG = PRESETS["small"].replace(wide_functions=True, rotary=True)
WIDE = Options(wide_functions=True, search=False)
LLAMA = TextDescription(
    name="llama", vocabulary=37, positions=64, dim=24, layers=2, heads=6, kv_heads=3, ffn=44
)
GPT = LLAMA.replace(
    name="gpt", position="learned", gated=False, activation="gelu_tanh", norm="layernorm"
)
ENCODER = ModelDescription(name="toy", tokens=4, features=3, dim=8, layers=1, heads=2, ffn=12)


def compiled(model, config=CONFIG):
    rng = np.random.default_rng(0)
    inputs, weights = random_inputs(rng, model), random_weights(rng, model)
    return compile_model(model, weights, inputs, config, WIDE)


@pytest.mark.parametrize("weight_depth", [2, 1024])
@pytest.mark.parametrize("model", [LLAMA, GPT], ids=["gated", "plain"])
def test_a_decoders_program_has_the_references_integers(model, weight_depth):
    decoder = untrained(model, Quantization(texts=2, length=24, wide_functions=True))
    config = CONFIG.replace(
        weight_depth=weight_depth, program_depth=8192, param_depth=512, table_slots=4
    )
    session = TextSession(compile_text(decoder, config, context=24), "golden")
    tokens = np.random.default_rng(2).integers(0, model.vocabulary, 12).tolist()
    session.take(tokens[:9])
    for token in tokens[9:]:
        session.step(token)
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize(
    "config",
    [
        # Also the machine of other tests of 16-bit operands.
        WIDE_MACHINE,
        *longer(
            PRESETS["tiny"].replace(
                **{"lanes": 2, "program_depth": 8192, "param_depth": 512, "table_slots": 4},
                **{"max_row": 64, "acc_depth": 256, "scratchpad_bytes": 8192},
                **{"wide_functions": True, "trace": True},
            )
        ),
    ],
    ids=["every wide unit", "functions alone"],
)
def test_the_circuit_has_the_golden_machines_tensors(config):
    decoder = untrained(GPT, Quantization(texts=2, length=24, wide_functions=True))
    session = TextSession(compile_text(decoder, config, context=24), "verilator")
    tokens = np.random.default_rng(3).integers(0, GPT.vocabulary, 5).tolist()
    turns = [session.take(tokens[:4]), session.step(tokens[4])]
    assert session.setup.mismatches == sum(turn.mismatches for turn in turns) == 0
    assert all(turn.tensors > 20 for turn in turns)


def test_what_lacks_the_unit_or_the_function_is_refused():
    message = "Model toy needs the unit wide_functions, which configuration small leaves out"
    with pytest.raises(FitError, match=f"^{message}$"):
        compiled(ENCODER, PRESETS["small"])
    for activation in ("relu", "relu6"):
        message = "Model toy has no function that polynomials of 16-bit operands are for"
        with pytest.raises(InputError, match=f"^{message}$"):
            compiled(ENCODER.replace(activation=activation))


@pytest.mark.parametrize(
    ("model", "count"), [("digits", 200), ("tales", 6), *longer(("digits", 500))]
)
def test_models_come_nearer_to_their_floats(model, count):
    partings = closeness(model, None, PRESETS["small"], count, lambda _done, _total: None)
    table, wide = partings["table"], partings["wide"]
    assert (table.inputs, wide.inputs) == (count, count)
    assert wide.square_error < 0.97 * table.square_error
    assert wide.cosine > table.cosine
    mixed = partings["mixed"]
    assert 0 < mixed.score_error < 0.45 * table.score_error


def test_a_model_without_smooth_functions_has_no_wide_ones():
    partings = closeness("digits-blocks", None, PRESETS["small"], 4, lambda _done, _total: None)
    assert [*partings] == ["table", "mixed"]


def test_other_models_are_not_compared():
    message = "Model minilm is neither a language model nor one of the digits: digits, .*"
    with pytest.raises(InputError, match=f"^{message}$"):
        closeness("minilm", None, CONFIG, 1, lambda _done, _total: None)
