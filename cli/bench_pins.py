"""celosia bench pins: run a model on a simulated board, with the memory chip on its pins."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.cli.board import opened
from celosia.cli.board_options import sdram_board_option
from celosia.cli.format_options import WEIGHT_KEYS, Formats, quantize_options
from celosia.cli.model_options import encoder_options
from celosia.cli.options import given_options
from celosia.cli.output import progress, report
from celosia.cli.paths import FILE
from celosia.cli.tree import Command
from celosia.compiling import compile_encoder
from celosia.fpga.boards import Board
from celosia.fpga.pll import checked_clock
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.text_shapes import SHAPES, untrained
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.equipment import equipped
from celosia.generators.lower.text_compiler import compile_text, skips_zeros
from celosia.generators.quantize.options import Quantization
from celosia.models import load
from celosia.tb.machine.memory_timing import ONCHIP
from celosia.tb.models.run_inputs import Files, read_inputs
from celosia.tb.models.text_session import TextSession

SAMPLE = 32
"""Tokens of the text on which weights without a model are calibrated."""
TOKEN = 1

CONTEXT = 256
"""Tokens that have room."""

_OF_SHAPES = ("layers", "position")


@click.command("pins", cls=Command, example="--board ulx3s_85f --layers 1")
@sdram_board_option
@click.argument("model", default="stories15M")
@click.option("--layers", type=int, default=0, help="Number of its layers; 0 for all.")
@click.option("--position", default=128, show_default=True, help="Tokens before.")
@click.option("--inputs", type=FILE, help="A file whose first input an encoder gets.")
@click.option("--clock", "mhz", type=float, help="Clock in MHz, in the place of the board's own.")
@quantize_options(WEIGHT_KEYS)
def bench_pins(
    target: tuple[Board, Config],
    model: str,
    layers: int,
    position: int,
    inputs: Path | None,
    mhz: float | None,
    formats: Formats,
) -> None:
    """Process a token, or run an encoder, on a simulated board with the memory chip on its pins.

    Without --inputs, MODEL names the shape of a language model, such as stories15M. A model of this
    shape with random weights then processes one token. With --inputs and the name of a file, MODEL
    is an encoder, which runs on the first input in the file. The weights are in the board's SDRAM,
    DDR3 or PSRAM when the simulation starts. The command exits with code 1 if a result of the board
    differs from the result of the golden machine, an exact model in software.
    """
    board, config = target
    if mhz is not None:
        board = replace(board, target_mhz=checked_clock(mhz))
    if (model in SHAPES) != (inputs is None):
        raise InputError(
            f"Model {model} must be one of {', '.join(SHAPES)}, or an encoder with --inputs"
        )
    if inputs is not None:
        if excluded := given_options(_OF_SHAPES):
            raise InputError(f"Option {excluded[0]} is not for {model}, which is an encoder")
        figures = encode_at_pins(model, inputs, board, config, formats)
        result = {"board": board.name, "model": model, **formats.figures, **figures}
    else:
        result = _token(board, config, model, layers, position, formats)
    report(f"{model} on {board.name}", [result], result)
    if result["mismatches"]:
        raise SystemExit(1)


def _token(
    board: Board,
    config: Config,
    shape: str,
    layers: int,
    position: int,
    formats: Formats,
) -> dict[str, Any]:
    """Return the figures of a token of a shape's model."""
    model = SHAPES[shape]
    if not 0 <= position < CONTEXT:
        raise InputError(f"Position must be from 0 to {CONTEXT - 1}, not {position}")
    if not 0 <= layers <= model.layers:
        raise InputError(f"Layers of {shape} must be from 0 to {model.layers}, not {layers}")
    model = model.replace(layers=layers or model.layers)
    options = Quantization(texts=1, length=min(SAMPLE, model.positions), **formats.quantization)
    with progress(f"{shape} on {board.name}"):
        decoder = untrained(model, options)
        config = equipped(config, options)
        figures = decode_at_pins(decoder, board, config, context=CONTEXT, position=position)
    return {
        "board": board.name,
        "shape": shape,
        "layers": model.layers,
        **formats.figures,
        **figures,
    }


def encode_at_pins(
    model: str, inputs: Path, board: Board, config: Config, formats: Formats
) -> dict[str, Any]:
    """Run an encoder on a simulated board; return a dictionary from names to measurements.

    The input is the first one of the file ``inputs``. ``model`` is the encoder's name or path, and
    ``formats`` has the number formats of the quantized encoder. Values whose names end in
    ``_share`` are fractions of the memory chip's peak rate. Raises :class:`InputError` if the input
    does not suit the model, or the model does not fit the board.
    """
    loaded = load(model)
    source = loaded.source
    assert isinstance(source, Source)
    chosen, samples, _ = read_inputs(model, source, Files(inputs=inputs), 1)
    program = compile_encoder(
        loaded,
        config,
        samples,
        encoder_options(formats, config),
        memory_bytes=board.memory_bytes,
        show=progress,
    )
    compiled, config = program.code, program.config
    assert isinstance(compiled, Artefact)
    rows = [source.rows(each) for each in chosen]
    title, image = f"{model} on {board.name}", bytes(compiled.image)
    with progress(title), opened(board, config, image) as (running, device):
        ran = program.infer(rows, device, ONCHIP)
        moved = running.traffic()
    figures = ran.figures()
    return {
        "tokens": len(rows[0]),
        "mismatches": ran.mismatches,
        "tensors": ran.tensors,
        "cycles": ran.cycles,
        "predicted_cycles": figures["predicted_cycles"],
        "clock_mhz": board.target_mhz,
        "sentences_per_second": board.target_mhz * 1e6 / ran.cycles,
        "utilization": figures["utilization"],
        **_shares(board, config, ran.spent, moved),
        "program_words": len(compiled.words),
        "counters": dict(ran.spent),
    }


def _shares(
    board: Board, config: Config, counters: Mapping[str, int], moved: Mapping[str, int]
) -> dict[str, Any]:
    """Return a run's loaded bytes, and shares of the chip's peak by counters and at the pins."""
    loaded = counters["loaded"] * config.mem_bytes
    return {
        "loaded_bytes": loaded if config.control.counters else None,
        "reached_share": loaded / board.peak_bytes / counters["busy_load"]
        if config.control.counters
        else None,
        "reading_cycles": moved.get("reading_cycles"),
        "reading_share": moved["reading_columns"] / moved["reading_cycles"] if moved else None,
        "moving_share": (moved["reading_columns"] + moved["other_columns"])
        / (moved["reading_cycles"] + moved["other_cycles"])
        if moved
        else None,
    }


def decode_at_pins(
    decoder: Decoder,
    board: Board,
    config: Config,
    *,
    context: int,
    position: int,
) -> dict[str, Any]:
    """Process one token on a simulated board with a memory chip, and return named measurements.

    ``context`` is the number of tokens for which the KV cache has room. ``position`` is the number
    of earlier tokens in the cache; their keys and values are zeros. Measurements whose names end in
    ``_share`` are fractions of the memory chip's peak rate, or None if they cannot be measured.
    Raises :class:`InputError` if the model does not fit the board.
    """
    # - reached_share: rate of LOAD in the cycles in which the load engine works
    # - weights_share: bytes of all weights in all cycles of the token
    # - reading_share: rate in cycles with only reads pending and every word accepted (SDR SDRAM)
    # - moving_share: rate in all cycles with pending reads or writes (SDR SDRAM)
    program = compile_text(
        decoder,
        config,
        context=context,
        memory_bytes=board.memory_bytes,
        sparse=skips_zeros(config),
    )
    image = program.setup[0].image
    clock = board.target_mhz * 1e6
    with opened(board, config, image) as (running, device):
        session = TextSession(program, device)
        session.length = position
        turn = session.step(TOKEN)
        moved = running.traffic()
        cycles = turn.cycles
        if config.vector.argmax:
            session.choose()
        session.logits()
    return {
        "position": position,
        "context": context,
        "mismatches": turn.mismatches,
        "tensors": turn.tensors,
        "cycles": cycles,
        "clock_mhz": board.target_mhz,
        "tokens_per_second": clock / cycles,
        "weight_bytes": decoder.weight_bytes,
        **_shares(board, config, turn.counters, moved),
        "weights_share": decoder.weight_bytes / board.peak_bytes / cycles,
        "program_words": len(program.words),
        "counters": dict(turn.counters),
    }
