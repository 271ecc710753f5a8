"""Tiles of weights that are zero: left out of products and image, and of the cycles of a run."""

import json

import numpy as np
import pytest

from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend import digits
from celosia.generators.frontend.weights import load_model
from celosia.generators.graph.operations import Linear
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.runtime.golden import GoldenModel
from celosia.tb.machine.memory_timing import FAR
from celosia.tb.models.trace_model import trace_compiled
from celosia.tb.verify.random_models import random_inputs, random_weights, with_zero_tiles
from tests.support.compiled_cases import MODEL, run_case
from tests.support.longer import longer

SMALL = PRESETS["small"]
PRUNED = ("query", "key", "value", "mlp_input", "hidden", "mlp_sum")
"""Results of the linear layers of a block."""


def tiles(compiled) -> int:
    """Return the number of tiles of all linear layers' weights."""
    array = compiled.config.array
    linears = [op for op in compiled.graph.ops if isinstance(op, Linear)]
    shapes = np.array([op.weight.shape for op in linears])
    return int(np.prod(-(-shapes // [array.rows, array.cols]), axis=1).sum())


def test_a_model_pruned_by_tiles_takes_a_third_of_the_cycles() -> None:
    """Cycles are counted on the Verilog, where no tensor differs."""
    train, _ = digits.load()
    model, weights = load_model("digits-blocks")
    inputs = digits.patches(train.images)[:16]
    dense = {name: np.where(value == 0, 0.01, value) for name, value in weights.items()}
    cycles, left_out = [], []
    for some in (dense, weights):
        compiled = compile_model(model, some, inputs, SMALL.replace(trace=True))
        traced = trace_compiled(compiled, inputs[0], "verilator", FAR)
        assert traced.figures["mismatches"] == 0
        predicted = compiled.expect(compiled.run(), FAR.latency).cycles
        assert traced.figures["cycles"] == pytest.approx(predicted, rel=0.01)
        cycles.append({each.name.rpartition(".")[2]: each.cycles for each in traced.operations})
        left_out.append(compiled.left_out)
    pruned = [sum(each[name] for name in PRUNED) for each in cycles]
    assert pruned[1] <= 0.3 * pruned[0]
    # The product of the embedding counts for the norm that it ends with.
    others = "attention_input", "output"
    every = [sum(each[name] for name in (*PRUNED, *others)) for each in cycles]
    assert every[1] <= 0.35 * every[0]
    pruned_tiles = (
        sum(value.size for name, value in weights.items() if "layers" in name and value.ndim == 2)
        // 64
    )
    assert left_out == [0, 0.75 * pruned_tiles]


@pytest.mark.parametrize("seed", [*range(4), *longer(*range(4, 8))])
def test_random_zeros(seed) -> None:
    rng = np.random.default_rng(seed)
    config = PRESETS[("odd", "small", "tiny", "medium")[seed % 4]]
    config = config.replace(zero_points=bool(rng.integers(2)), program_depth=1 << 14)
    model = MODEL.replace(dim=36, ffn=int(rng.integers(20, 70)), tokens=int(rng.integers(1, 20)))
    weights = random_weights(rng, model)
    share = float(rng.choice([0.5, 0.75, 0.95]))
    sparse = with_zero_tiles(rng, weights, config, share)
    # A layer without weights, and a layer with a single one.
    sparse["layers.0.up.weight"] = np.zeros_like(sparse["layers.0.up.weight"])
    single = np.zeros_like(sparse["layers.1.down.weight"])
    single[-1, -1] = 0.5
    sparse["layers.1.down.weight"] = single
    inputs = random_inputs(rng, model)
    dense, compact = (run_case(model, some, inputs, config) for some in (weights, sparse))
    assert (dense.plan.compact, dense.left_out) == (0, 0)
    assert compact.plan.compact
    assert compact.left_out >= 0.3 * tiles(compact)


def test_layers_without_weights_have_no_products() -> None:
    rng = np.random.default_rng(0)
    weights = random_weights(rng, MODEL)
    empty = {name: 0 * value if value.ndim == 2 else value for name, value in weights.items()}
    compiled = run_case(MODEL, empty, random_inputs(rng, MODEL), SMALL)
    products = [each for each in unpack(compiled.words) if each.opcode == Opcode.MATMUL]
    # Those of attention, and of the mean.
    attention = 2 * MODEL.heads * MODEL.layers
    assert len(products) == len(compiled.entries) * (attention + 1)
    assert compiled.left_out == tiles(compiled)


def test_zeros_of_all_layers_are_left_out_of_their_loop() -> None:
    rng = np.random.default_rng(0)
    model = MODEL.replace(dim=32, heads=2, kv_heads=2, head_dim=16, layers=6, ffn=64, tokens=16)
    weights = random_weights(rng, model)
    mask = np.zeros((64, 32))
    mask[8:24, :16] = mask[40:, 8:16] = 1
    for layer in range(model.layers):
        weights[f"layers.{layer}.up.weight"] *= mask
        weights[f"layers.{layer}.down.weight"] *= mask.T
        # Zeros of one layer alone stay.
        weights[f"layers.{layer}.output.weight"][8 * (layer % 4) :][:8] = 0
    config = SMALL.replace(program_depth=1200)
    compiled = run_case(model, weights, random_inputs(rng, model), config)
    assert compiled.plan.loop_layers
    assert compiled.left_out == 2 * model.layers * (8 * 4 - 7)


def test_more_zeros_stay_if_the_program_is_too_short() -> None:
    rng = np.random.default_rng(0)
    model = MODEL.replace(dim=32, heads=2, kv_heads=2, head_dim=16, ffn=128, tokens=16, layers=1)
    weights = with_zero_tiles(rng, random_weights(rng, model), SMALL, 0.75)
    inputs, left_out = random_inputs(rng, model), []
    for depth in (4096, 800, 700):
        compiled = run_case(model, weights, inputs, SMALL.replace(program_depth=depth))
        assert not compiled.plan.loops
        left_out.append(compiled.left_out)
    assert left_out[0] == pytest.approx(0.75 * tiles(compiled), rel=0.05)
    assert left_out[0] > left_out[1] > left_out[2] > 0


def test_zeros_of_weights_in_groups() -> None:
    rng = np.random.default_rng(0)
    model = MODEL.replace(dim=32, heads=2, kv_heads=2, head_dim=16, ffn=64, tokens=16)
    config = SMALL.replace(weight_formats="int4", weight_group=16)
    weights = with_zero_tiles(
        rng, random_weights(rng, model), config.replace(rows=16), 0.6, "layers"
    )
    options = Options(weights="int4", group=16, search=False)
    inputs = random_inputs(rng, model)
    compiled = run_case(model, weights, inputs, config, options)
    assert compiled.left_out >= 0.5 * tiles(compiled)
    _, report = GoldenModel(compiled).run(inputs[0])
    assert report.counters["macs"] < 0.6 * compiled.macs()


def test_inspection_counts_the_tiles(celosia) -> None:
    words = ("inspect", "digits-blocks", "--config", "small")
    assert celosia(*words)[1].rstrip().endswith(", 384 tiles of zeros left out")
    figures = json.loads(celosia(*words, "--json")[1])
    assert figures["fit"]["zero_tiles_left_out"] == 384
