"""Models in commands that take accumulators: the same integers in fewer cycles."""

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.instruction import unpack
from celosia.arch.isa import REGISTERS
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.embedding import accelerator_rows
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.reference.integers import fused_away
from celosia.generators.runtime.golden import GoldenModel
from celosia.sim.checker import check
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.inference import run_inferences
from celosia.tb.verify.random_models import random_inputs, random_model, random_weights
from tests.support.longer import longer

SMALL = PRESETS["small"]
MODEL = ModelDescription(name="toy", tokens=5, features=3, dim=12, layers=2, heads=3, ffn=10)


def fused_case(seed: int, model: ModelDescription, config: Config) -> set[str]:
    """Compare commands that read accumulators with those that do not; return the former."""
    rng = np.random.default_rng(seed)
    inputs = random_inputs(rng, model)
    weights = random_weights(rng, model)
    apart, fused = (
        compile_model(model, weights, inputs, choice, Options(search=False))
        for choice in (config, config.replace(fused=True))
    )
    registers = fused.run().registers
    check(fused.words, fused.config, registers=[registers.get(n, 0) for n in range(REGISTERS)])
    values = accelerator_rows(model, weights, inputs[0][None])[0]
    expected, tensors = (GoldenModel(program).tensors(values) for program in (apart, fused))
    inside = fused_away(fused.graph)
    assert expected.keys() - tensors.keys() <= inside
    assert tensors.keys() <= expected.keys()
    for name in tensors.keys() - inside:
        np.testing.assert_array_equal(tensors[name], expected[name], err_msg=name)
    steps = [instruction for instruction in unpack(fused.words) if "drain" in instruction.flags]
    return {
        "+".join((instruction.opcode.name, *sorted(instruction.flags))) for instruction in steps
    }


@pytest.mark.parametrize(
    ("placement", "kind"),
    [("pre", "NORM+add+drain+write_sum"), ("post", "NORM+add+drain+wide_out")],
)
def test_products_go_straight_into_softmax_and_norm(placement, kind) -> None:
    kinds = fused_case(0, MODEL.replace(placement=placement), SMALL)
    assert kind in kinds
    assert "SOFTMAX+drain+per_tensor" in kinds


@pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")
def test_products_straight_into_softmax_and_norm_take_fewer_cycles() -> None:
    config = PRESETS["odd"].replace(cols=6, trace=True)
    model, cycles = MODEL.replace(placement="post", layers=1), []
    for fused in (False, True):
        rng = np.random.default_rng(0)
        inputs = random_inputs(rng, model)
        weights = random_weights(rng, model)
        choice = config.replace(fused=fused)
        compiled = compile_model(model, weights, inputs, choice, Options(search=False))
        figures = run_inferences(compiled, "icarus", inputs[:1], PROMPT).figures()
        assert figures["mismatches"] == 0
        assert abs(figures["predicted_cycles"] - figures["cycles"]) <= 0.03 * figures["cycles"]
        cycles.append(figures["cycles"])
    assert cycles[1] < 0.95 * cycles[0]


@pytest.mark.parametrize("seed", [*range(6), *longer(*range(6, 12))])
def test_random_models_of_fewer_commands(seed) -> None:
    rng = np.random.default_rng(seed)
    config = SMALL.replace(
        lanes=int(rng.choice([1, 2, 4, 8])),
        acc_depth=int(rng.integers(30, 200)),
        param_depth=256,
        program_depth=int(rng.choice([2000, 1 << 16])),
    )
    model = random_model(rng)
    if model.shaped:
        # Diagonals differ from layer to layer, which no loop can do.
        config = config.replace(program_depth=1 << 16)
    fused_case(seed, model, config)
