"""celosia flash: the board's loader, and the messages without it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import celosia
from celosia.arch.config import Config
from celosia.cli.board_options import flashed
from celosia.cli.main import celosia as tree
from celosia.fpga.boards import get_board, with_flash, with_sdram
from celosia.tb.models.flash_image import flash_image


def invoke(*words: str) -> str:
    result = CliRunner(catch_exceptions=False).invoke(
        tree, ["flash", *words], standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a loader on PATH that writes down its arguments, and nothing else."""
    script = tmp_path / "bin" / "fujprog"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n', encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent))
    return script


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "bits"
    folder.mkdir()
    (folder / "ulx3s_85f.bit").write_bytes(b"\x00")
    (folder / "report.json").write_text('{"board": "ulx3s_85f"}', encoding="utf-8")
    return folder


def test_the_first_loader_on_path_loads(loader: Path, built: Path, tmp_path: Path) -> None:
    out = invoke("--board", "ulx3s_85f", "--from", str(built))
    assert out == f"{built}/ulx3s_85f.bit is in board ulx3s_85f\n"
    assert (tmp_path / "said").read_text(encoding="utf-8") == f"{built}/ulx3s_85f.bit\n"


def test_a_missing_loader_is_named(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    message = (
        "^Board ulx3s_85f needs openFPGALoader or fujprog on PATH; install the package "
        "openfpgaloader or fujprog$"
    )
    with pytest.raises(ValueError, match=message):
        invoke("--board", "ulx3s_85f", "--from", str(built))


def test_another_boards_build_is_refused(loader: Path, built: Path) -> None:
    message = f"^Folder {built} holds a build for ulx3s_85f, not for ulx3s_45f$"
    with pytest.raises(ValueError, match=message):
        invoke("--board", "ulx3s_45f", "--from", str(built))


def test_a_folder_without_a_bitstream_is_refused(tmp_path: Path) -> None:
    message = (
        f"^There is no {tmp_path}/icebreaker.bin; make it with celosia build --board icebreaker "
        f"--out {tmp_path}$"
    )
    with pytest.raises(ValueError, match=message):
        invoke("--board", "icebreaker", "--from", str(tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"luts": 3}', "\xff"])
def test_a_report_of_something_else_is_refused(built: Path, text: str) -> None:
    (built / "report.json").write_bytes(text.encode("latin-1"))
    message = (
        f"^{built}/report.json is not the report of a build; make it with celosia build --board "
        f"ulx3s_85f --out {built}$"
    )
    with pytest.raises(ValueError, match=message):
        invoke("--board", "ulx3s_85f", "--from", str(built))


def test_what_a_loader_says_is_shown(loader: Path, built: Path) -> None:
    loader.write_text("#!/bin/sh\necho no cable\nexit 1\n", encoding="utf-8")
    message = (
        r"^fujprog could not load board ulx3s_85f; is it connected, and may this user open it\?"
        r"\nno cable$"
    )
    with pytest.raises(RuntimeError, match=message):
        invoke("--board", "ulx3s_85f", "--from", str(built))


ICEBREAKER = with_flash(get_board("icebreaker"), "spi")
SDRAM = with_sdram(get_board("ulx3s_85f"))


def compiled(model: str, config: Config, folder: Path, **options: Any) -> Path:
    return celosia.compile(celosia.load(model), config, **options).save(folder)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits' model, compiled for the machine that leaves room for the flash's reader."""
    return compiled("digits", ICEBREAKER.config, tmp_path_factory.mktemp("models") / "digits")


def image(model: Path, *words: object) -> dict[str, Any]:
    said = invoke(str(model), "--board", "icebreaker", *map(str, words), "--json")
    return json.loads(said)


def test_a_models_image_is_written_behind_the_bitstream(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bits"
    folder.mkdir()
    (folder / "icebreaker.bin").write_bytes(b"\x00")
    script = tmp_path / "iceprog"
    script.write_text(f'#!/bin/sh\nfor each; do f="$each"; done; echo "$@" >> {tmp_path}/said\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    report = image(digits, "--count", "2", "--from", folder)
    assert report["line"] == "celosia: digits, image ok, class 9, class 1\r\n"
    first, second = (tmp_path / "said").read_text(encoding="utf-8").splitlines()
    assert first == f"{folder}/icebreaker.bin"
    assert second.startswith("-o 0x200000 ")
    assert second.endswith("icebreaker.img")


def test_an_image_that_only_loads_says_no_class(digits: Path, tmp_path: Path) -> None:
    file = tmp_path / "digits.img"
    said = image(digits, "--count", "0", "--image-only", file)
    assert said["line"] == "celosia: digits, image ok\r\n"
    assert file.read_bytes()[:3] == b"CEL"


def test_an_image_goes_on_with_a_text(tmp_path: Path) -> None:
    """The line is the library's text; the model is in the SDRAM, as the chip is too small."""
    model, steps = celosia.load("tales"), 6
    program = celosia.compile(model, SDRAM.config, context=32)
    prompt = "one day a red fox"
    words = ("--board", "ulx3s_85f", "--prompt", prompt, "--steps", str(steps), "--json")
    folder = program.save(tmp_path / "tales")
    said = json.loads(invoke(str(folder), *words, "--image-only", str(tmp_path / "tales.img")))
    text = prompt + "".join(program.generate(prompt, steps))
    assert said["line"] == f"celosia: tales, image ok: {text}\r\n"
    assert len(text) == len(prompt) + steps


def test_a_folder_for_another_machine_than_the_builds_is_refused(
    digits: Path, tmp_path: Path
) -> None:
    (tmp_path / "icebreaker.bin").write_bytes(b"")
    other = ICEBREAKER.config.replace(acc_depth=128)
    (tmp_path / "config.toml").write_text(other.to_toml(), encoding="utf-8")
    message = (
        f"^Folder {digits} is compiled for another configuration, icebreaker, than the build's; "
        f"compile it again with --config {tmp_path}/config.toml$"
    )
    with pytest.raises(ValueError, match=message):
        image(digits, "--from", tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Give --from, a build's folder, or FOLDER, of celosia compile"),
        (("--image-only", "x"), "Option --image-only needs FOLDER, of celosia compile"),
        (
            ("digits",),
            "digits is not a folder of celosia compile; make one with: celosia compile digits "
            "--out build/digits",
        ),
        (
            ("{digits}", "--image-only", "x", "--from", "y"),
            "Options --image-only and --from exclude each other",
        ),
        (("{digits}", "--prompt", "x"), "Option --prompt is not for {digits}, which is an encoder"),
    ],
)
def test_what_cannot_be_an_image_is_refused(digits: Path, words: tuple[str, ...], message) -> None:
    with pytest.raises(ValueError, match=f"^{message.format(digits=digits)}$"):
        invoke("--board", "icebreaker", *(word.format(digits=digits) for word in words))


def test_a_model_that_answers_sources_is_refused(tmp_path: Path) -> None:
    config = SDRAM.config.replace(table_slots=4, param_depth=1024)
    folder = compiled("numerals", config, tmp_path / "numerals")
    message = (
        "^Model numerals answers sources, which an image in the flash cannot hold; take one that "
        "continues a text$"
    )
    with pytest.raises(ValueError, match=message):
        invoke(str(folder), "--board", "ulx3s_85f", "--prompt", "X", "--image-only", "x")


def test_an_image_needs_memory_and_a_serial_line(digits: Path) -> None:
    message = "^Model digits needs 26352 bytes of external memory, but the board has 2048$"
    with pytest.raises(ValueError, match=message):
        flash_image(celosia.open(digits).code, [], (), memory_bytes=2048, payload=256)
    with pytest.raises(ValueError, match=r"^An image in the flash needs the serial line, not"):
        with_flash(get_board("icebreaker", "spi"), "spi")


def test_the_boards_own_machine_leaves_room_for_the_flashs_reader() -> None:
    board = get_board("icebreaker")
    assert board.config.micro is not None
    smaller = board.config.replace(acc_depth=128)
    assert flashed((board, board.config), "spi")[1] == board.config.replace(requantizer=False)
    assert flashed((board, smaller), "spi")[1] == smaller
