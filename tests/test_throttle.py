"""A hot machine is slower, and computes the same."""

from pathlib import Path

import numpy as np
import pytest

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.generators.frontend import digits
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.integers import evaluate
from celosia.hdl.accelerator import Accelerator
from celosia.hdl.control.throttle import Throttle
from celosia.tb.machine.simulated import VerilatorMachine
from celosia.tb.machine.simulators import PROMPT
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.inference import infer
from celosia.tb.models.text_session import TextSession
from tests.support.heat import heated
from tests.support.simulation import run_bench

MINI = TextDescription(
    name="mini", vocabulary=19, positions=16, dim=8, layers=1, heads=2, kv_heads=1, ffn=12
)
HOT = PRESETS["tiny"].replace(
    throttle=5, trace=True, weight_depth=256, rotary=True, lanes=2, program_depth=4096
)


def test_it_is_hot_until_it_is_cool() -> None:
    unit = Throttle(4)

    async def bench(ctx) -> None:
        ctx.set(unit.thermal.hot, 90)
        ctx.set(unit.thermal.cool, 80)
        for temperature, held in ((90, 0), (91, 3), (80, 3), (79, 0), (85, 0), (255, 3), (0, 0)):
            ctx.set(unit.thermal.temperature, temperature)
            await ctx.tick().repeat(3)
            holds = []
            for _ in range(40):
                holds.append(ctx.get(unit.hold))
                await ctx.tick()
            assert sum(holds) == 10 * held, temperature

    run_bench(unit, bench)


def test_without_the_field_there_is_no_port() -> None:
    assert "thermal" not in Accelerator(PRESETS["tiny"]).signature.members
    assert "thermal" in Accelerator(PRESETS["tiny"].replace(throttle=2)).signature.members
    with pytest.raises(InputError, match=r"^Field throttle must be 0 or at least 2, not 1$"):
        Config.of(throttle=1)


STORIES = Path(__file__).parents[1] / "examples" / "stories260k"


def hot_machine(
    config: Config, memory_bytes: int, seed: int, *, quick: bool = True
) -> VerilatorMachine:
    size = 1 << (memory_bytes - 1).bit_length()
    verilog, timing = heated(config, seed), PROMPT.fields()
    return VerilatorMachine(config, memory_bytes=size, verilog=verilog, quick=quick, **timing)


@pytest.mark.slow
def test_a_model_computes_the_same_while_hot() -> None:
    compiled = compile_digits("digits", HOT)
    _, test = digits.load()
    inputs = digits.patches(test.images[:2])
    machine = hot_machine(HOT, compiled.memory_bytes, 1)
    inferences = infer(machine, compiled, inputs, PROMPT)
    assert inferences.mismatches == 0
    assert inferences.tensors > 80
    cool = compiled.expect(compiled.run(), PROMPT.latency, PROMPT.interval).cycles
    assert inferences.cycles / len(inputs) > 1.4 * cool


@pytest.mark.slow
def test_a_decoder_computes_the_same_while_hot() -> None:
    decoder = untrained(MINI, Quantization())
    program = compile_text(decoder, HOT, context=16)
    session = TextSession(program, hot_machine(HOT, program.memory_bytes, 1))
    tokens = np.random.default_rng(4).integers(MINI.vocabulary, size=12).tolist()
    session.take(tokens[:5])
    for token in tokens[5:]:
        session.step(token)
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
    assert sum(turn.mismatches for turn in (session.setup, *session.turns)) == 0
    assert sum(turn.tensors for turn in session.turns) > 70


@pytest.mark.long
@pytest.mark.parametrize(("texts", "length"), [(1, 64), (8, 512)])
def test_stories260k_is_the_same_while_hot(texts: int, length: int) -> None:
    source = load_text(str(STORIES / "stories260K.bin"), STORIES / "tok512.bin")
    decoder = source.quantize(Quantization(texts=4))
    config = PRESETS["story"].replace(throttle=3, trace=True)
    program = compile_text(decoder, config, context=512)
    session = TextSession(program, hot_machine(config, program.memory_bytes, 3, quick=length < 100))
    rng = np.random.default_rng(6)
    cycles = 0
    for _ in range(texts):
        session.begin()
        token = int(rng.integers(decoder.description.vocabulary))
        for _ in range(length):
            turn = session.step(token)
            token = session.choose()
            assert turn.mismatches == 0, (session.length, turn.wrong)
            assert turn.tensors > 50
            cycles += turn.cycles
    middle = program.expect(program.run(length // 2), PROMPT.latency, PROMPT.interval).cycles
    assert cycles / (texts * length) > 1.2 * middle
