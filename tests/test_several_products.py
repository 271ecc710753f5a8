"""Encoders whose matrices are sums of products: low-rank corrections, planes of nested weights."""

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.generators.export.manifest import manifest
from celosia.generators.frontend import digits
from celosia.generators.frontend.sources import load_source
from celosia.generators.graph.fewer_planes import BITS
from celosia.generators.graph.operations import Linear
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.lower.residence import WeightHome
from celosia.generators.quantize.quantize import quantize_model
from celosia.generators.reference.floats import forward
from celosia.generators.reference.integers import evaluate
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.inference import run_inferences
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.compiled_cases import MODEL, random_case
from tests.support.text_cases import TEXT

RANK = 3
SMALL = PRESETS["small"].replace(weight_formats="int4,int2,high2,mid2")
SLOTS = {"array": "tree", "zero_points": False, "operand_gating": False, "weight_depth": 512}
ODD = {"rows": 5, "cols": 3, "lanes": 1, "fused": False}


def coded(weights="int2", **changes) -> Options:
    return Options(weights=weights, search=False, **changes)


@pytest.mark.parametrize(
    ("model", "changes", "options"),
    [
        ({}, {}, coded(low_rank=RANK)),
        ({"norm": "rmsnorm"}, ODD, coded(low_rank=RANK)),
        ({"variable": True, "placement": "post"}, {}, coded("int4", low_rank=RANK)),
        ({}, {"weight_group": 8}, coded("int4", low_rank=RANK, group=8)),
        ({}, {"program_depth": 1000}, coded(low_rank=RANK)),
        ({}, SLOTS, coded("int4", low_rank=RANK)),
        ({}, SLOTS | {"packed_slots": True}, coded("int4", low_rank=RANK)),
        ({}, {"wide_operands": True}, coded(low_rank=RANK, activations="mixed")),
        ({"norm": "rmsnorm"}, {}, coded("nested")),
        ({}, ODD, coded("nested")),
        ({"variable": True, "placement": "post"}, {}, coded("nested")),
        ({}, {"program_depth": 2100}, coded("nested")),
        ({}, {"wide_operands": True}, coded("nested", activations="mixed")),
    ],
)
def test_programs_have_the_references_integers(model, changes, options) -> None:
    compiled = random_case(1, MODEL.replace(**model), SMALL.replace(**changes), options)
    linears = [op for op in compiled.graph.ops if isinstance(op, Linear)]
    inner = [op for op in linears if "layers." in op.target.name]
    if options.low_rank:
        assert {op.low_rank.weight.shape[0] for op in inner} == {RANK}
        assert all(op.low_rank.first.target.name.endswith("_thin") for op in inner)
    else:
        assert list(compiled.entries) == ["encode", "encode.4", "encode.2"]
        tensors = [evaluate(compiled.graph_at(bits), np.ones((5, 3))) for bits in BITS]
        assert len({[*each.values()][-1].tobytes() for each in tensors}) == len(BITS)
        assert compiled.plan.home is WeightHome.STREAM
    if "weight_depth" in changes:
        assert compiled.plan.home is WeightHome.SLOTS


@pytest.mark.parametrize(
    ("options", "machine", "bits"),
    [
        (coded("int4", low_rank=RANK, batch=2), "golden", (8,)),
        (coded("nested", batch=2), "golden", (4, 2, 8)),
        pytest.param(coded("int3", low_rank=RANK), "verilator", (8,), marks=pytest.mark.slow),
        pytest.param(coded("nested"), "verilator", (2, 8, 4), marks=pytest.mark.slow),
    ],
)
def test_runs_one_behind_the_other(options, machine, bits) -> None:
    """Each inference, or batch, reads its own bits; every tensor is the golden model's."""
    if machine in missing_tools(machine):
        pytest.skip("Verilator is not installed")
    rng = np.random.default_rng(2)
    inputs, weights = random_inputs(rng, MODEL), random_weights(rng, MODEL)
    compiled = compile_model(MODEL, weights, inputs, TEXT, options)
    inputs = [*inputs, *inputs][: 3 * options.batch]
    inferences = run_inferences(compiled, machine, inputs, PROMPT, bits=bits)
    figures = inferences.figures()
    assert figures["mismatches"] == 0
    assert figures["tensors"] > 50
    if machine == "golden":
        return
    assert figures["predicted_cycles"] == pytest.approx(figures["cycles_per_inference"], rel=0.03)
    if len(bits) > 1:
        read = {run.bits: run.loaded * TEXT.mem_bytes for run in inferences.runs}
        for width in (8, 4):
            saved = (
                compiled.graph_at(width).weight_bytes - compiled.graph_at(width // 2).weight_bytes
            )
            assert read[width] - read[width // 2] == pytest.approx(saved, rel=0.15)
            assert compiled.least_bytes(bits=width) - compiled.least_bytes(bits=width // 2) == saved


def test_packages_tell_where_fewer_bits_begin() -> None:
    source, (train, _) = load_source("digits"), digits.load()
    samples = digits.patches(train.images[:20])
    model = source.description, source.weights, samples, SMALL
    nested, plain = (compile_model(*model, coded(weights)) for weights in ("nested", "int2"))
    told, plainly = [
        manifest(program, source, {}, latency=20, interval=1)["program"]["entries"]
        for program in (nested, plain)
    ]
    assert list(told) == ["encode", "encode.4", "encode.2"]
    assert told["encode.4"] == nested.entries["encode.4"].pc
    assert 0 == told["encode"] < told["encode.4"] < told["encode.2"] < len(nested.words)
    assert list(plainly) == ["encode", "again"]


def test_a_correction_makes_up_for_what_codes_lose() -> None:
    """The integers of the digits' model against its floats' classes, on the test images."""
    source, (train, test) = load_source("digits"), digits.load()
    samples, images = (digits.patches(part.images[:100]) for part in (train, test))
    exact = forward(source.description, source.weights, images)["output"].reshape(len(images), -1)

    def lost(**options) -> float:
        made = quantize_model(
            source.description, source.weights, samples, SMALL, Options(weights="int2", **options)
        )
        outputs = [made.dequantize_output(evaluate(made, image)["output"]) for image in images[:40]]
        return float(np.mean((np.array(outputs).reshape(40, -1) - exact[:40]) ** 2))

    errors = [lost(), lost(low_rank=2), lost(low_rank=8)]
    assert errors[1] < 0.8 * errors[0]
    assert errors[2] < 0.85 * errors[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"low_rank": 12},
            "Rank of a correction must be less than the 12 of layer layers.0.query, not 12",
        ),
        ({"weights": "int8"}, "Rank of a correction is 3, which needs weights of fewer bits, .*"),
    ],
)
def test_corrections_that_are_refused(options, message) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        random_case(1, MODEL, SMALL, coded(**({"low_rank": RANK} | options)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--quantize", "bits=4"), "Bits 4 need weights nested, but they are in int8"),
        (("--quantize", "weights=nested", "--quantize", "bits=3"), "Bits must be 8, 4 or 2, not 3"),
        (("--quantize", "low-rank=4"), "needs weights of fewer bits, but they are in int8"),
    ],
)
def test_commands_refuse(celosia, words, message) -> None:
    code, output, errors = celosia("run", "digits", "--count", "1", "--sim", "golden", *words)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert message in errors
