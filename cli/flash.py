"""celosia flash: load a bitstream into a board, and write a model's image into its flash."""

import tempfile
from pathlib import Path

import click

from celosia.arch.errors import InputError
from celosia.arch.link import fingerprint
from celosia.arch.support.writing import write_files
from celosia.cli.board_options import board_option
from celosia.cli.input_options import inputs_option, random_count
from celosia.cli.output import report
from celosia.cli.paths import FILE, MODEL
from celosia.cli.prompt_options import prompt_option
from celosia.cli.run import refuse_other_kind
from celosia.cli.text_options import checked_steps, steps_option
from celosia.cli.tree import Command
from celosia.fpga.boards import FLASHES, IMAGE_ADDR, get_board, with_flash
from celosia.fpga.flash import (
    check_image,
    find_bitstream,
    flash_command,
    image_command,
    load_command,
    memory_of,
)
from celosia.fpga.flash import flash as load
from celosia.fpga.top import PAYLOAD_BYTES
from celosia.generators.export.manifest import CONFIG
from celosia.machines import machine
from celosia.opening import open_compiled
from celosia.programs import Program
from celosia.tb.models.flash_image import FlashImage, flash_image, text_flash_image
from celosia.tb.models.run_inputs import Files, read_inputs


@click.command(cls=Command, example="build/digits --board icebreaker --from build/board")
@click.argument("model", metavar="[FOLDER]", type=MODEL, required=False)
@board_option
@click.option("--from", "built", type=FILE, help="Folder that celosia build wrote to.")
@inputs_option
@prompt_option("What a text begins with.")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Inputs that it runs on at power-on; with 0 it is only loaded, for a host.",
)
@steps_option
@click.option(
    "--image-only", "file", type=FILE, help="Write the image to this file, not to a board."
)
def flash(
    model: str | None,
    name: str,
    built: Path | None,
    inputs: Path | None,
    prompt: str | None,
    count: int,
    steps: int,
    file: Path | None,
) -> None:
    """Load a bitstream into a board, or write a model (and a bitstream) to the board's flash.

    The command calls the board's usual loader. Without FOLDER it loads the bitstream of --from into
    the FPGA. With FOLDER, a folder that celosia compile wrote, it writes the model to the board's
    flash, and also the bitstream if --from is given.

    If the bitstream was built with --flash, the board loads the model at power-on and runs it. An
    encoder runs on the inputs of --inputs, by default on test images of handwritten digits; the
    board then sends a line of text with the classes of the inputs. A language model continues the
    text of --prompt with the likeliest tokens, and the board sends the text.
    """
    board = get_board(name)
    if model is None:
        if file is not None:
            raise InputError("Option --image-only needs FOLDER, of celosia compile")
        if built is None:
            raise InputError("Give --from, a build's folder, or FOLDER, of celosia compile")
        bitstream = find_bitstream(board, built)
        load(load_command(board, bitstream), board)
        click.echo(f"{bitstream} is in board {board.name}")
        return
    if file is not None and built is not None:
        raise InputError("Options --image-only and --from exclude each other")
    board = with_flash(board, next(iter(FLASHES)))
    existing = None if built is None else find_bitstream(board, built)
    program = open_compiled(model)
    if built is not None:
        _check_machine(program, model, built)
    text = program.code.reads_tokens
    refuse_other_kind(model, text=text)
    made = _image(program, memory_of(board, program.bytes), inputs, count, prompt or "", steps)
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
        "model": program.name,
        "bytes": len(made.data),
        "address": IMAGE_ADDR,
        "line": made.text,
        "file": None if file is None else str(file),
    }
    report(f"Image of {program.name}", [result | {"line": made.text.strip()}], result)


def _check_machine(program: Program, model: str, built: Path) -> None:
    """Raise :class:`InputError` if a build has another machine than a program is compiled for."""
    file = built / CONFIG
    if file.is_file() and fingerprint(machine(str(file))) != fingerprint(program.config):
        raise InputError(
            f"Folder {model} is compiled for another configuration, {program.config.name}, than "
            f"the build's; compile it again with --config {file}"
        )


def _image(
    program: Program, memory: int, inputs: Path | None, count: int, prompt: str, steps: int
) -> FlashImage:
    """Return the image of a program that runs on inputs, or continues a prompt, at power-on."""
    code, room = program.code, {"memory_bytes": memory, "payload": PAYLOAD_BYTES}
    if code.reads_tokens:
        program.check_texts(1)
        assert program.tokenizer is not None
        return text_flash_image(code, program.tokenizer, prompt, checked_steps(steps), **room)
    named, random = random_count(inputs)
    source, files = program.float_source, Files(inputs=named, random=random)
    some, _, _ = read_inputs(program.float_name, source, files, count or None)
    rows = [source.rows(values) for values in some[:count]]
    return flash_image(code, rows, source.labels, **room)
