"""Rates of a machine at its models: exact cycles of the simulation, at some clock."""

from dataclasses import replace
from typing import Any

from arch.config import Config
from arch.errors import InputError, RunError
from arch.isa import RING_SLOTS
from cli.board import simulated
from fpga.boards import Board
from fpga.device import Device
from generators.quantize.options import Quantization
from generators.text_program import TextProgram, compile_text
from generators.text_shapes import STORIES260K, untrained
from tb.machines import make_machine
from tb.memory_timing import ONCHIP
from tb.run_inputs import run_files
from tb.text_session import TextSession, Turn

MODEL = "digits"
"""The model whose inferences are counted."""

COUNT = 4
"""Inferences that are simulated."""

RATES = ("cycles_per_inference", "inferences_per_second")
"""Rates in the report of a board's machine."""


TEXT_MODEL = STORIES260K
"""The model whose tokens are counted."""

POSITION = 128
"""Tokens of the text before the one that is counted."""

TOKEN_RATES = ("cycles_per_token", "tokens_per_second")
"""Rates in the report of a machine that has room for a language model."""


def inference_rates(config: Config, memory_bytes: int, clock_mhz: float) -> dict[str, Any]:
    """Return ``cycles_per_inference`` and ``inferences_per_second`` of the digits' model.

    The circuit runs in Verilator, with ``memory_bytes`` of external memory that is as fast as the
    one on the chip. Where the model does not fit the machine both are None, and ``no_inference``
    says why.

    Raises :class:`RunError` where an output is not the golden model's.
    """
    machine = make_machine(config, "verilator", memory_bytes, ONCHIP)
    try:
        ran = run_files(MODEL, config, machine, count=COUNT, memory_bytes=memory_bytes)
    except InputError as error:
        return dict.fromkeys(RATES) | {"no_inference": str(error)}
    found = ran.figures
    if found["mismatches"]:
        raise RunError(
            f"{found['mismatches']} of {COUNT} outputs of {MODEL} on {config.name} are not the "
            "golden model's"
        )
    cycles = found["cycles_per_inference"]
    return dict(zip(RATES, (cycles, round(clock_mhz * 1e6 / cycles, 1)), strict=True))


def token_rates(config: Config, board: Board, clock_mhz: float) -> dict[str, Any]:
    """Return ``cycles_per_token`` and ``tokens_per_second`` of stories260K at a position.

    They are those of the circuit in Verilator, which also fills its weight slots there, from the
    board's external memory; the weights are random, as cycles do not depend on them. A memory on
    the chip is as fast as the one of :func:`inference_rates`; with SDRAM it is the simulated board
    with its chip at the pins. Nothing is returned where the model does not fit, or its weights
    would not stay on the chip.

    Raises :class:`RunError` where a tensor is not the golden model's.
    """
    if config.weight_depth == RING_SLOTS:
        return {}
    decoder = untrained(TEXT_MODEL, Quantization(texts=1, length=16, folded=True))
    context = min(TEXT_MODEL.positions, config.max_row)
    made = config if board.peak_bytes else config.replace(trace=True)
    try:
        program = compile_text(
            decoder,
            made,
            context=context,
            sinks=min(4, context - 1),
            memory_bytes=board.memory_bytes,
        )
    except InputError:
        return {}
    if board.peak_bytes:
        wrong, turn = _at_pins(program, replace(board, target_mhz=clock_mhz))
    else:
        wrong, turn = _step(TextSession(program, "verilator", ONCHIP))
    if wrong:
        raise RunError(
            f"{wrong} tensors of {TEXT_MODEL.name} on {config.name} are not the golden model's"
        )
    rate = round(clock_mhz * 1e6 / turn.cycles, 1)
    return dict(zip(TOKEN_RATES, (turn.cycles, rate), strict=True)) | {
        "text_model": TEXT_MODEL.name,
        "token_position": POSITION,
    }


def _at_pins(program: TextProgram, board: Board) -> tuple[int, Turn]:
    """Return the wrong tensors of a token on a simulated board, and the token."""
    with simulated(board, program.config) as running:
        device = Device.open(running.port, program.config, link=board.link)
        found = _step(TextSession(program, device))
        device.close()
    return found


def _step(session: TextSession) -> tuple[int, Turn]:
    """Return the wrong tensors of a token behind others, the setup's among them, and the token."""
    session.length = POSITION
    turn = session.step(0)
    return session.setup.mismatches + turn.mismatches, turn
