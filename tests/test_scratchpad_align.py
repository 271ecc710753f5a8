"""Programs whose rows begin at multiples of some bytes, on the golden machine and the Verilog."""

import numpy as np
import pytest

from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.lower.encoder_compiler import Options
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.running import run_files
from celosia.tb.machine.simulators import make_machine
from celosia.tb.models.text_session import TextSession
from tests.support.decoders import CONFIGS, GPT, LLAMA
from tests.support.longer import longer

ALIGNS = (1, 2, 4)
QUICK = Options(search=False)


@pytest.mark.parametrize("model", ["digits", "digits-simplified"])
def test_images_are_the_same_at_every_alignment(model):
    cycles = set()
    for align in ALIGNS:
        config = PRESETS["small"].replace(scratchpad_align=align)
        ran = run_files(model, config, make_machine(config, "golden"), count=2, options=QUICK)
        assert ran.figures["mismatches"] == 0
        cycles.add(ran.figures["accuracy"])
    assert len(cycles) == 1


@pytest.mark.parametrize(
    ("name", "context"),
    [
        *(("streamed", 9), ("resident", 16), ("fused", 9), ("passing", 16)),
        *longer(("streamed", 16), ("resident", 9), ("fused", 16), ("passing", 9)),
    ],
)
def test_texts_are_the_same_at_every_alignment(name, context):
    decoder = untrained(LLAMA, Quantization(texts=2, length=16))
    tokens = np.random.default_rng(1).integers(LLAMA.vocabulary, size=context + 3).tolist()
    logits = []
    for align in ALIGNS:
        config = CONFIGS[name].replace(scratchpad_align=align)
        session = TextSession(compile_text(decoder, config, context=context, sinks=1), "golden")
        session.take(tokens[:5])
        for token in tokens[5:]:
            session.step(token)
        logits.append(session.logits())
    assert all(np.array_equal(scores, logits[0]) for scores in logits)


@pytest.mark.long  # test_hdl_accelerator.py has programs on such a scratchpad
def test_a_text_on_the_verilog():
    decoder = untrained(GPT, Quantization(texts=2, length=16))
    config = CONFIGS["fused"].replace(scratchpad_align=8, mem_width=64, trace=True)
    session = TextSession(compile_text(decoder, config, context=11, sinks=1), "verilator")
    turns = [session.take([3, 7, 1]), *(session.step(token) for token in range(9))]
    assert sum(turn.mismatches for turn in turns) == session.setup.mismatches == 0
    assert all(turn.tensors for turn in turns)


def test_rows_that_end_between_are_refused():
    decoder = untrained(LLAMA, Quantization(texts=1, length=8))
    config = CONFIGS["streamed"].replace(scratchpad_align=8)
    with pytest.raises(FitError, match=r"^Model llama has rows of ") as caught:
        compile_text(decoder, config, context=16, sinks=1)
    assert "but scratchpad_align is 8" in str(caught.value)
    assert caught.value.remedies == ({"scratchpad_align": 4},)
