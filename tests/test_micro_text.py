"""A language model on the microcoded machine of a board with little memory."""

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.fpga.boards import get_board
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.integers import evaluate
from celosia.sim.micro_machine import MicroMachine
from celosia.tb.models.text_session import TextSession

BOARD = get_board("icebreaker")
SOURCE = load_text("tales")
DECODER = SOURCE.quantize(Quantization(texts=2, length=32))
TOKENS = SOURCE.tokenizer.encode("one day a red fox")


def compiled(context: int = 64, memory_bytes: int = BOARD.memory_bytes) -> Artefact:
    config = BOARD.config.replace(trace=True)
    return compile_text(DECODER, config, context=context, memory_bytes=memory_bytes)


def test_rows_stay_where_external_memory_has_no_room_for_them() -> None:
    roomy, program = compiled(memory_bytes=1 << 16), compiled()
    assert roomy.memory_bytes > BOARD.memory_bytes >= program.memory_bytes
    assert [len(variant.setup) for variant in (roomy, program)] == [1, 2]
    model = DECODER.description
    rows = 2 * model.dim * model.positions + model.dim * model.vocabulary
    assert program.scratchpad_bytes - rows < roomy.scratchpad_bytes
    assert len(program.setup[-1].image) < roomy.memory_bytes - rows
    with pytest.raises(InputError, match=r"^Model tales needs \d+ bytes of external memory, but "):
        compiled(memory_bytes=1 << 14)


def test_the_machine_writes_what_the_golden_machine_writes() -> None:
    program = compiled()
    assert program.config.micro is not None
    session = TextSession(program, MicroMachine(program.config))
    for token in TOKENS[:6]:
        session.step(token)
        wanted = evaluate(DECODER, TOKENS[: session.length])["logits"][-1]
        assert np.array_equal(session.logits(), wanted)
    turn = session.turns[-1]
    assert turn.mismatches == 0
    assert turn.tensors > 20
    assert 0 < turn.cycles < 100_000
