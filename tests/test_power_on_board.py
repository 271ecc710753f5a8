"""A simulated board that begins by itself with the image in its flash, good or bad."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import celosia as library
from celosia.arch.power_on import REFUSALS, Refusal
from celosia.fpga.boards import Board, get_board, with_flash
from celosia.fpga.device import Device
from celosia.fpga.top import PAYLOAD_BYTES, BoardTop
from celosia.generators.frontend import digits
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.lower.artefact import Artefact
from celosia.generators.runtime.golden import GoldenModel
from celosia.tb.machine.simulated_board import SimulatedBoard
from celosia.tb.machine.toolchain import missing_tools
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.flash_image import FlashImage, flash_image, text_flash_image
from celosia.tb.models.run_text import run_text
from tests.support.door import DECODERS, TEXTS, Kind, reciter_folder, reference

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed"),
]

BOARD = with_flash(get_board("icebreaker"), "qspi")
CLOCK = 200_000
"""So slow that a blink takes few cycles (Hz)."""
DIVISOR, TIMEOUT = 4, 1 << 12


@contextmanager
def powered(image: bytes, folder: Path, board: Board = BOARD) -> Iterator[SimulatedBoard]:
    """Run a board with an image in its flash."""
    file = folder / "board.img"
    file.write_bytes(image)
    top = BoardTop(
        board.config,
        clock=CLOCK,
        memory_bytes=board.memory_bytes,
        flash=board.flash,
        divisor=DIVISOR,
        timeout=TIMEOUT,
    )
    with SimulatedBoard(top, image=file) as simulated:
        yield simulated


VALUES = digits.patches(digits.load()[1].images[:1])[0]


@pytest.fixture(scope="module")
def compiled() -> Artefact:
    return compile_digits("digits", BOARD.config)


@pytest.fixture(scope="module")
def made(compiled: Artefact) -> FlashImage:
    memory = {"memory_bytes": BOARD.memory_bytes, "payload": PAYLOAD_BYTES}
    return flash_image(compiled, [VALUES], (), **memory)


def test_a_board_answers_by_itself(made, compiled, tmp_path: Path, line_of) -> None:
    values = VALUES
    golden = GoldenModel(compiled).run(values)[0]
    assert golden[0].argmax() == digits.load()[1].labels[0]
    with powered(made.data, tmp_path) as board:
        line = line_of(board.port)
        assert line == f"celosia: digits, image ok, class {golden[0].argmax()}\r\n" == made.text
        device = Device.open(board.port, BOARD.config)
        output = device.read_memory(compiled.output_addr, compiled.output_count)
        assert np.array_equal(compiled.read_output(output), golden)
        assert 0 < device.read_register("CYCLES_LOW") < 900_000
        # The host goes on with the model that it finds.
        again = compiled.request(values)
        again.give(device)
        assert device.start().cycles == device.read_register("CYCLES_LOW")
        device.close()
        assert "LED" not in board.log()


def test_an_image_with_a_flipped_bit_is_told(made, compiled, tmp_path: Path, line_of) -> None:
    damaged = bytearray(made.data)
    damaged[len(damaged) // 2] ^= 4
    with powered(bytes(damaged), tmp_path) as board:
        assert line_of(board.port) == REFUSALS[Refusal.CORRUPT].decode()
        end = time.monotonic() + 60
        while board.log().count("LED error") < 4 and time.monotonic() < end:
            time.sleep(0.1)
        lines = board.log().splitlines()
        assert [int(each.split()[2]) for each in lines[:4]] == [1, 0, 1, 0]
        device = Device.open(board.port, BOARD.config)
        assert device.read_register("CYCLES_LOW") == 0
        assert device.read_memory(0, 256) != compiled.image.tobytes()[:256]
        device.close()


@pytest.mark.long
def test_a_board_tells_a_tale_by_itself(celosia, tmp_path: Path, line_of) -> None:
    (tmp_path / "board.toml").write_text(BOARD.config.to_toml(), encoding="utf-8")
    made = ("tales", "--context", "32", "--config", tmp_path / "board.toml")
    assert celosia("compile", *made, "--out", tmp_path / "tales")[0] == 0
    text = ("--prompt", "one day", "--steps", "8")
    image = tmp_path / "tales.img"
    words = (tmp_path / "tales", "--board", "icebreaker", *text, "--image-only", image, "--json")
    code, output, errors = celosia("flash", *words)
    assert code == 0, errors
    with powered(image.read_bytes(), tmp_path) as board:
        line = line_of(board.port, 900)
        assert line == json.loads(output)["line"]
        assert line.startswith("celosia: tales, image ok: one day ")
        assert "LED" not in board.log()


def check_text(kind: Kind, text: str, folder: Path, line_of: Callable[..., str]) -> None:
    """Check the line of a board whose model continues "hello" by a text's tokens."""
    reciter_folder(kind, folder, [0])
    tokenizer = reference(folder)
    prompt = load_text(str(folder)).tokenizer.encode("hello")
    tokens = prompt + tokenizer(text, add_special_tokens=False)["input_ids"]
    reciter_folder(kind, folder, tokens)
    memory = {"memory_bytes": BOARD.memory_bytes}
    program = library.compile(library.load(folder), BOARD.config, context=len(tokens), **memory)
    steps = ("hello", len(tokens) - len(prompt))
    right = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    known = program.model.source.tokenizer
    assert run_text(program.code, known, *steps, "golden")["tokens"] == tokens
    made = text_flash_image(program.code, known, *steps, payload=PAYLOAD_BYTES, **memory)
    with powered(made.data, folder) as board:
        line = line_of(board.port, 300)
        assert line == made.text == f"celosia: {folder.name}, image ok: {right}\r\n"


# Each kind's line is compared with the reference in test_door.py, too.
SPOKEN = [
    pytest.param(kind, id=kind.name, marks=[pytest.mark.long] * (kind.name != "gpt2"))
    for kind in DECODERS
    if kind.name in ("gpt2", "llama", "unigrams")
]


@pytest.mark.parametrize("kind", SPOKEN)
def test_a_board_prints_characters_of_several_tokens(kind, tmp_path: Path, line_of) -> None:
    pytest.importorskip("transformers")
    check_text(kind, " café 😀 שלום", tmp_path, line_of)


@pytest.mark.long
@pytest.mark.parametrize("part", range(0, len(TEXTS), 8))
@pytest.mark.parametrize("kind", SPOKEN, ids=lambda kind: kind.name)
def test_a_board_prints_every_script(kind, part: int, tmp_path: Path, line_of) -> None:
    pytest.importorskip("transformers")
    check_text(kind, " ".join(TEXTS[part : part + 8]), tmp_path, line_of)


@pytest.mark.long
def test_an_image_goes_to_the_sdram(celosia, simulated_board, tmp_path: Path, line_of) -> None:
    image = tmp_path / "digits.img"
    board = ("--board", "ulx3s_25f", "--memory", "sdram")
    (tmp_path / "board.toml").write_text(celosia("configs", *board)[1], encoding="utf-8")
    made = ("digits", "--config", tmp_path / "board.toml", "--out", tmp_path / "digits")
    assert celosia("compile", *made)[0] == 0
    words = (tmp_path / "digits", *board[:2], "--count", "2", "--image-only", image, "--json")
    code, output, errors = celosia("flash", *words)
    assert code == 0, errors
    with simulated_board(*board, "--flash", f"spi:{image}") as port:
        assert line_of(port, 900) == json.loads(output)["line"]
        device = Device.open(port)
        assert device.read_register("CYCLES_LOW") > 0
        device.close()
