"""The compiler's work grows with the layers that differ, not with equal layers."""

import dataclasses
import sys

from celosia.arch.presets import PRESETS
from celosia.generators.lower.encoder_compiler import Options, compile_quantized
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.program import lines
from tests.support.decoders import CONFIGS, LLAMA, random_decoder
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


def test_instructions_of_equal_layers_of_a_decoder_are_checked_once(monkeypatch) -> None:
    checked = list[int]()
    monkeypatch.setattr(lines, "check_step", lambda *_arguments: checked.append(1))
    counts = []
    for layers in (3, 8):
        checked.clear()
        decoder = random_decoder(dataclasses.replace(LLAMA, layers=layers))
        compile_text(decoder, CONFIGS["passing"], context=40)
        counts.append(len(checked))
    assert counts[1] < 1.05 * counts[0]
