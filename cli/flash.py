"""celosia flash: load a bitstream into a board, and write a model's image into its flash."""

import tempfile
from pathlib import Path
from typing import Any

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.support.writing import write_files
from celosia.cli.board_options import board_options, flashed
from celosia.cli.format_options import DECODER_KEYS, quantize_options
from celosia.cli.input_options import context_option
from celosia.cli.model_options import searched
from celosia.cli.options import json_option, seed_option
from celosia.cli.output import report
from celosia.cli.paths import FILE, MODEL
from celosia.cli.prompt_options import prompt_option
from celosia.cli.text_options import ContinuationOptions, likeliest_options
from celosia.cli.tree import Command
from celosia.fpga.boards import FLASHES, IMAGE_ADDR, Board
from celosia.fpga.flash import (
    check_image,
    find_bitstream,
    flash_command,
    image_command,
    load_command,
)
from celosia.fpga.flash import flash as load
from celosia.fpga.top import PAYLOAD_BYTES
from celosia.tb.models.flash_image import flash_image, text_flash_image
from celosia.tb.models.run_inputs import Files


@click.command(cls=Command, example="--board ulx3s_85f --from build/ulx3s")
@board_options
@click.option("--from", "folder", type=FILE, help="Folder that celosia build wrote to.")
@click.option("--model", type=MODEL, help="Model that the board begins with at power-on.")
@click.option(
    "--inputs", type=FILE, help="Its inputs: .npy [count, ...], a folder of images or .wav."
)
@click.option("--sentences", type=FILE, help="A file's lines, for a model of texts.")
@click.option("--calibration", type=FILE, help="Texts or inputs to calibrate on.")
@prompt_option("What a text begins with; the model is as celosia run takes it.")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Inputs that it runs on at power-on; with 0 it is only loaded, for a host.",
)
@context_option
@click.option(
    "--image-only", "file", type=FILE, help="Write the image to this file, not to a board."
)
@quantize_options(DECODER_KEYS)
@likeliest_options
@seed_option
@json_option
def flash(
    target: tuple[Board, Config],
    folder: Path | None,
    model: str | None,
    inputs: Path | None,
    sentences: Path | None,
    calibration: Path | None,
    prompt: str | None,
    count: int,
    tokens: int,
    file: Path | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Load the bitstream of a build into a board, through the board's usual loader.

    With --model an image of the model is written into the board's flash, and the bitstream as well.
    A bitstream of celosia build --flash loads the model at power-on, runs it on the inputs and
    sends a line of text with their classes. If neither inputs nor sentences are given, the model
    must be one of the digits, and runs on the first of their test split. With --prompt it continues
    a text with the likeliest token each time.
    """
    board, config = target
    if model is None:
        if file is not None:
            raise InputError("Option --image-only needs --model")
        if folder is None:
            raise InputError("Give --from, a build's folder, or --model, or both")
        bitstream = find_bitstream(board, folder)
        load(load_command(board, bitstream), board)
        click.echo(f"{bitstream} is in board {board.name}")
        return
    if file is not None and folder is not None:
        raise InputError("Options --image-only and --from exclude each other")
    board, config = flashed(target, next(iter(FLASHES)))
    existing = None if folder is None else find_bitstream(board, folder)
    room = {"memory_bytes": board.memory_bytes, "payload": PAYLOAD_BYTES}
    if prompt is None:
        files = Files(inputs=inputs, sentences=sentences, calibration=calibration)
        values["formats"].refuse_bits("an image")
        asked = searched(model, config, values["formats"])
        made = flash_image(model, config, files, **room, count=count, tokens=tokens, options=asked)
    else:
        options = ContinuationOptions.of(values | {"calibration": calibration})
        options.formats.refuse_bits("an image")
        compiled = options.compiled(model, config, board.memory_bytes, fixed=True)
        made = text_flash_image(compiled.code, compiled.tokenizer, prompt, options.steps, **room)
    check_image(board, len(made.data))
    if file is not None:
        write_files(file.parent, {file.name: made.data})
    else:
        with tempfile.TemporaryDirectory(prefix="celosia.") as work:
            image = Path(work) / f"{board.name}.img"
            image.write_bytes(made.data)
            commands = [image_command(board, image)]
            if existing is not None:
                commands.insert(0, flash_command(board, existing))
            for command in commands:
                load(command, board)
    result = {
        "board": board.name,
        "model": model,
        "bytes": len(made.data),
        "address": IMAGE_ADDR,
        "line": made.text,
        "file": None if file is None else str(file),
    }
    report(f"Image of {model}", [result | {"line": made.text.strip()}], as_json, result)
