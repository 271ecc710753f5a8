"""Models of inputs with any length up to the most, and the shapes that are admitted."""

import re

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.embedding import accelerator_rows
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.reference.floats import forward
from celosia.generators.runtime.golden import GoldenModel
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.compiled_cases import MODEL, run_case

SMALL = PRESETS["small"]


TEXT = MODEL.replace(
    embedding="tokens",
    features=0,
    vocabulary=20,
    types=2,
    tokens=9,
    embedding_norm=True,
    placement="post",
    final_norm=False,
    variable=True,
    unit=True,
)


@pytest.mark.parametrize("program_depth", [1 << 16, 600])
@pytest.mark.parametrize("changes", [{}, {"embedding": "none", "vocabulary": 0, "types": 0}])
def test_one_program_for_every_length(changes, program_depth) -> None:
    model = TEXT.replace(**changes)
    rng = np.random.default_rng(1)
    weights, full = random_weights(rng, model), random_inputs(rng, model, 40)
    inputs = list({len(sample): sample for sample in full}.values())
    assert {len(sample) for sample in inputs} >= {1, 9}
    compiled = run_case(
        model, weights, inputs, SMALL.replace(program_depth=program_depth), count=len(inputs)
    )
    assert (compiled.loops > 0) == (program_depth == 600)
    golden = GoldenModel(compiled)
    for sample in inputs:
        values = accelerator_rows(model, weights, sample[None])[0]
        expected = forward(model, weights, sample[None])["output"][0]
        np.testing.assert_allclose(np.linalg.norm(expected), 1)
        assert expected[0] @ golden.run(values)[0][0] > 0.98


def test_rows_behind_the_length_change_nothing() -> None:
    rng = np.random.default_rng(2)
    weights, inputs = random_weights(rng, TEXT), random_inputs(rng, TEXT)
    compiled = compile_model(TEXT, weights, inputs, SMALL)
    golden = GoldenModel(compiled)
    rows = accelerator_rows(TEXT, weights, inputs[0][None, :3])[0]
    expected = golden.run(rows)[0]
    request = compiled.request(rows)
    addr, data = request.writes[0]
    noise = rng.integers(-9999, 9999, (9, 12)).astype("<i2")
    noise[:3] = np.frombuffer(data, "<i2").reshape(9, 12)[:3]
    request.give(golden.machine)
    golden.machine.write_memory(addr, noise.tobytes())
    golden.machine.start()
    data = golden.machine.read_memory(compiled.output_addr, compiled.output_count)
    np.testing.assert_array_equal(compiled.read_output(data), expected)


def test_inputs_of_a_compiled_model_have_its_shape() -> None:
    rng = np.random.default_rng(2)
    for model, text in ((TEXT, "[at most 9, 12]"), (MODEL, "[5, 3]")):
        inputs = random_inputs(rng, model)
        compiled = compile_model(model, random_weights(rng, model), inputs, SMALL)
        for shape in ((0, 12), (10, 12), (5, 4), (5,)):
            message = f"An input of model toy must have the shape {text}, not {list(shape)}"
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                compiled.request(np.zeros(shape))
