"""Encoders of each kind, lowered: integers of the reference, and loads that help."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from celosia.arch.instruction import unpack
from celosia.arch.isa import RING_SLOTS, Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.graph.operations import Linear
from celosia.generators.lower.encoder_compiler import Options
from celosia.generators.lower.fitting import FitError, Reason
from celosia.generators.lower.residence import WeightHome, weight_homes
from celosia.generators.lower.search import Search
from tests.support.compiled_cases import MODEL, random_case
from tests.test_generators_lower import SMALL, encoder

FORMATS = SMALL.replace(weight_formats="int4,high2,mid2")
SHAPED = MODEL.replace(norm="none", final_norm=False, shaped=True)
WINDOW = MODEL.replace(tokens=24, window=3, global_tokens=2)
LOOPS = MODEL.replace(tokens=24, dim=16, heads=4, kv_heads=4, head_dim=4)
SHORT = SMALL.replace(acc_depth=16, program_depth=1100)
PAIRS = SMALL.replace(
    **{"weight_depth": 64, "array": "tree", "weight_formats": "int4", "packed_slots": True},
    **{"weight_group": 16, "zero_points": False, "operand_gating": False},
)
ENCODERS = {
    "shaped": (SHAPED, SMALL, {}),
    "shaped in loops": (SHAPED, SMALL.replace(program_depth=700), {}),
    "heads apart": (MODEL, SMALL, {"alike": False}),
    "nested": (MODEL, FORMATS, {"weights": "nested"}),
    "corrections": (MODEL, FORMATS, {"weights": "int4", "low_rank": 3}),
    "wide": (MODEL, SMALL.replace(operands="affine16", max_k=64), {"activations": "mixed"}),
    "window": (WINDOW, PRESETS["odd"], {}),
    "heads in loops": (LOOPS, SHORT, {}),
    "groups in loops": (LOOPS.replace(kv_heads=2), SHORT, {}),
    "unfused": (MODEL.replace(variable=True), SMALL.replace(fused=False), {}),
    "pairs": (MODEL, PAIRS, {"weights": "int4", "group": 16}),
}


@pytest.mark.parametrize("case", ENCODERS)
def test_encoders_of_each_kind_have_the_references_integers(case) -> None:
    model, config, options = ENCODERS[case]
    compiled = random_case(1, model, config, Options(search=False, **options))
    stored = {
        op.stored is not None or bool(op.planes)
        for op in compiled.graph.ops
        if isinstance(op, Linear)
    }
    assert (True in stored) == ("weights" in options)
    levels = unpack(compiled.words)
    opened = np.cumsum(
        [(op.opcode == Opcode.LOOP) - (op.opcode == Opcode.ENDLOOP) for op in levels]
    )
    # A loop over heads that share keys is within one over key heads, and there is none of one head.
    assert bool(opened.max()) == ("loop" in case or case == "window")
    if model in (LOOPS, LOOPS.replace(kv_heads=2)):
        assert opened.max() == 3 + (model.kv_heads < model.heads)


def test_smaller_loads_are_not_tried_if_they_cannot_help() -> None:
    for reason, hopeless, patient, reloads, parts, spills in product(
        (Reason.TOO_LARGE, Reason.TOO_LONG), *[(False, True)] * 5
    ):
        plan_of = SimpleNamespace(reloads=reloads, loop_parts=parts, spills=spills)
        search = SimpleNamespace(patient=patient)
        refusal = FitError("some", reason=reason, hopeless=hopeless)
        if reason == Reason.TOO_LARGE:
            skips = hopeless and not patient
        else:
            # Smaller loads make more words, but for input that is loaded again, or for spills.
            helps = (reloads and parts) or (spills and not hopeless)
            skips = not helps
        assert Search.skips_smaller(search, plan_of, refusal) == skips


def test_weights_stay_where_all_of_them_fit() -> None:
    linears = [op for op in encoder(SMALL).ops if isinstance(op, Linear)]
    tiles = sum(-(-op.weight.shape[0] // 8) * -(-op.weight.shape[1] // 8) for op in linears)
    size = sum(op.weight.size for op in linears)
    for spare, some in ((0, [WeightHome.SLOTS]), (-1, [])):
        config = SMALL.replace(weight_depth=RING_SLOTS + tiles + spare)
        homes = [*some, WeightHome.SCRATCHPAD, WeightHome.STREAM]
        assert weight_homes(linears, config) == homes
    least = 1 << (size - 1).bit_length()
    for bytes_, some in ((2 * least, [WeightHome.SCRATCHPAD]), (least // 2, [])):
        homes = weight_homes(linears, SMALL.replace(scratchpad_bytes=bytes_))
        assert homes == [*some, WeightHome.STREAM]
