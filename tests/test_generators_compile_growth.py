"""The compiler's work grows with the layers that differ, not with equal layers."""

import dataclasses
import sys

from celosia.arch.presets import PRESETS
from celosia.generators.lower.encoder_compiler import Options, compile_quantized
from tests.test_generators_schedule import MODEL, quantized


def calls(layers: int) -> int:
    """Return the number of calls of Python functions while a model is compiled."""
    config = PRESETS["medium"].replace(program_depth=600)
    model, _ = quantized(config, dataclasses.replace(MODEL, layers=layers))
    count = 0

    def note(_frame, event, _argument) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        program = compile_quantized(model, config, Options())
    finally:
        sys.setprofile(before)
    assert program.plan.loop_layers
    return count


def test_eight_more_equal_layers_cost_little() -> None:
    few, many = calls(4), calls(12)
    assert many < 1.25 * few
