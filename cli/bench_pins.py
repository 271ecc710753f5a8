"""celosia bench pins: a token of a language model on a simulated board, to the pins."""

import tempfile
from pathlib import Path
from typing import Any

import click

from arch.config import Config
from arch.errors import InputError
from cli.board import simulated
from cli.board_options import board_options
from cli.format_options import Formats, format_options
from cli.options import equipped, json_option, seed_option
from cli.output import progress, report
from fpga.boards import Board
from fpga.device import Device
from generators.graph import Decoder
from generators.quantize.options import Quantization
from generators.text_program import compile_text
from generators.text_shapes import SHAPES, untrained
from tb.text_session import TextSession

SAMPLE = 32
"""Tokens of the text that weights of no model are calibrated on."""
TOKEN = 1


@click.command("pins")
@board_options
@click.option(
    "--shape", type=click.Choice([*SHAPES]), default="stories15M", help="Shape of the model."
)
@click.option("--layers", type=int, default=0, help="So many of its layers; 0 for all.")
@click.option("--context", default=256, show_default=True, help="Tokens that have room.")
@click.option("--position", default=128, show_default=True, help="Tokens before.")
@format_options
@seed_option
@json_option
def bench_pins(
    target: tuple[Board, Config],
    shape: str,
    layers: int,
    context: int,
    position: int,
    formats: Formats,
    seed: int,
    as_json: bool,
) -> None:
    """Run a token of a language model of random weights on a simulated board's pins.

    With --memory sdram its memory holds the model from the start. Exits with code 1 where what the
    board gives differs from the golden machine's.
    """
    board, config = target
    model = SHAPES[shape]
    if not board.peak_bytes:
        raise InputError("Option --memory must be sdram, which holds the model")
    if not 0 <= position < context:
        raise InputError(f"Position must be from 0 to {context - 1}, not {position}")
    if not 0 <= layers <= model.layers:
        raise InputError(f"Layers of {shape} must be from 0 to {model.layers}, not {layers}")
    model = model.replace(layers=layers or model.layers)
    options = Quantization(texts=1, length=min(SAMPLE, model.positions), **formats.quantization)
    formats.refuse_search("one of random weights")
    formats.refuse_bits("the pins")
    with progress(f"{shape} on {board.name}"):
        decoder = untrained(model, options, seed)
        config = equipped(config, options)
        found = decode_at_pins(
            decoder, board, config, context=context, position=position, sparse=formats.sparse
        )
    result = {
        "board": board.name,
        "shape": shape,
        "layers": model.layers,
        **formats.figures,
        "seed": seed,
        **found,
    }
    report(f"{shape} on {board.name}", [result], as_json, result)
    if found["mismatches"]:
        raise SystemExit(1)


def decode_at_pins(
    decoder: Decoder,
    board: Board,
    config: Config,
    *,
    context: int,
    position: int,
    sparse: bool = False,
) -> dict[str, Any]:
    """Return the figures of a token on a simulated board, behind ``position`` others.

    Those before it are zeros, on which cycles do not depend. ``reached_share`` is the part of the
    chip's peak that LOAD reached while it had commands, ``weights_share`` the part that the model's
    weights are over all cycles of the token.

    Raises :class:`InputError` where the model does not fit the board, which has SDRAM.
    """
    program = compile_text(
        decoder, config, context=context, memory_bytes=board.memory_bytes, sparse=sparse
    )
    image = program.setup[0].image
    clock = board.target_mhz * 1e6
    with tempfile.TemporaryDirectory() as folder:
        contents = Path(folder) / "image.bin"
        contents.write_bytes(image)
        with simulated(board, config, contents=contents) as running:
            device = Device.open(running.port, config, link=board.link)
            device.contents = image
            session = TextSession(program, device)
            session.length = position
            turn = session.step(TOKEN)
            cycles = turn.cycles
            if config.argmax:
                session.choose()
            session.logits()
            device.close()
    chip, counters = board.peak_bytes, turn.counters
    loaded = counters["loaded"] * config.mem_bytes
    return {
        "position": position,
        "context": context,
        "mismatches": turn.mismatches,
        "tensors": turn.tensors,
        "cycles": cycles,
        "clock_mhz": board.target_mhz,
        "tokens_per_second": clock / cycles,
        "weight_bytes": decoder.weight_bytes,
        "loaded_bytes": loaded if config.counters else None,
        "reached_share": loaded / chip / counters["busy_load"] if config.counters else None,
        "weights_share": decoder.weight_bytes / chip / cycles,
        "program_words": len(program.words),
        "counters": dict(counters),
    }
