"""Compute a board's inferences and tokens per second from cycles counted in a simulation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.arch.isa import RING_SLOTS
from celosia.arch.link import fingerprint
from celosia.cli.board import opened
from celosia.fpga.boards import Board
from celosia.generators.frontend.text_shapes import STORIES260K, untrained
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.running import run_files
from celosia.tb.models.texts_session import TextsSession

MODEL = "digits"
"""The model whose inferences are counted."""

COUNT = 4
"""Number of inferences that are simulated."""

RATES = ("cycles_per_inference", "inferences_per_second")
"""Rates in the report of a board's machine."""


TEXT_MODEL = STORIES260K
"""The model whose tokens are counted."""

POSITION = 128
"""Tokens of the text before the counted one."""

TOKEN = 1
"""The counted token."""

TOKEN_RATES = ("cycles_per_token", "tokens_per_second")
"""Rates in the report of a machine that has room for a language model."""

PAIR_RATES = ("cycles_per_token_two_texts", "tokens_per_second_two_texts")
"""Rates of tokens if two texts are continued in the same runs."""

SPEEDS = (*RATES, *TOKEN_RATES, *PAIR_RATES)
"""All rates, in the order of tables."""

KEYS = (*SPEEDS, "no_inference", "text_model", "token_position", "configuration")
"""All fields that :func:`rates` may return."""


def rates(config: Config, board: Board, clock_mhz: float) -> dict[str, Any]:
    """Return the inferences and tokens per second of a machine on a board, and their cycles.

    The board is simulated with a clock of ``clock_mhz`` (MHz). The result is a dictionary with the
    entries of :func:`inference_rates` and of :func:`token_rates`, and with the configuration's
    hash. Raises :class:`RunError` if a result differs from the golden machine's.
    """
    board = replace(board, target_mhz=clock_mhz, flash=None)
    made = {"configuration": f"{fingerprint(config.replace(trace=False)):08x}"}
    return inference_rates(config, board) | token_rates(config, board) | made


def renewed(report: Mapping[str, Any], counted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a build report with new rates.

    ``counted`` is a new result of :func:`rates`. Its entries replace the report's old rates.
    """
    return {name: value for name, value in report.items() if name not in KEYS} | dict(counted)


def inference_rates(config: Config, board: Board) -> dict[str, Any]:
    """Return cycles per inference and inferences per second of a machine on a simulated board.

    The model is a classifier of handwritten digits. The result is a dictionary. The cycles are the
    mean over :data:`COUNT` images. If the model does not fit the board, the cycles and the rate are
    None, and the entry ``no_inference`` has the reason. Raises :class:`RunError` if an output
    differs from the golden machine's.
    """
    with opened(board, config) as (_, device):
        try:
            ran = run_files(
                MODEL, config, device, count=COUNT, memory_bytes=board.memory_bytes
            ).figures
        except InputError as error:
            return dict.fromkeys(RATES) | {"no_inference": str(error)}
    if ran["mismatches"]:
        raise RunError(
            f"{ran['mismatches']} of {COUNT} outputs of {MODEL} on {config.name} are not the "
            "golden model's"
        )
    return _rates(RATES, ran["cycles_per_inference"], board)


def token_rates(config: Config, board: Board) -> dict[str, Any]:
    """Return cycles per token and tokens per second of a machine on a simulated board, by name.

    The model has the shape of stories260K, and random weights. The measured token is the one after
    :data:`POSITION` tokens. Names that end in ``_two_texts`` are for a run with two texts, also per
    token. The result is empty if the model does not fit, or the array cannot keep weights from run
    to run. Raises :class:`RunError` if logits differ from the golden machine's.
    """
    if config.array.weight_depth == RING_SLOTS:
        return {}
    decoder = untrained(
        TEXT_MODEL, Quantization(texts=1, length=16, folded=True, deferred=config.row_factors > 0)
    )
    context = min(TEXT_MODEL.positions, config.vector.longest_row)
    rates_by_name: dict[str, Any] = {}
    for texts, names in enumerate((TOKEN_RATES, PAIR_RATES), 1):
        try:
            program = compile_text(
                decoder,
                config,
                context=context,
                sinks=min(4, context - 1),
                memory_bytes=board.memory_bytes,
                texts=texts,
            )
        except InputError:
            break
        cycles = _run(program, board)
        rates_by_name |= _rates(names, cycles / texts if texts > 1 else cycles, board)
    named = {"text_model": TEXT_MODEL.name, "token_position": POSITION}
    return rates_by_name | named if rates_by_name else {}


def _run(program: Artefact, board: Board) -> int:
    """Return the cycles of a run on a simulated board: a token of each text, after others."""
    image = program.setup[0].image if board.peak_bytes else b""
    with opened(board, program.config, image) as (_, device):
        session = TextsSession(program, device)
        session.lengths = [POSITION] * program.batch

        def compare(_text: int) -> None:
            session.logits()

        session.advance([TOKEN] * program.batch, compare)
        turn = session.turns[-1]
    if turn.mismatches:
        raise RunError(
            f"The scores of {TEXT_MODEL.name} on {program.config.name} are not the golden model's"
        )
    return turn.cycles


def _rates(names: tuple[str, str], cycles: float, board: Board) -> dict[str, Any]:
    """Return cycles, and their rate per second, by two names."""
    return dict(zip(names, (cycles, round(board.target_mhz * 1e6 / cycles, 1)), strict=True))
