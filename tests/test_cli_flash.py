"""celosia flash: the board's loader, and what is said without it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from celosia.cli.board_options import flashed
from celosia.cli.flash import flash
from celosia.fpga.boards import get_board


def invoke(*words: str) -> str:
    result = CliRunner(catch_exceptions=False).invoke(flash, list(words), standalone_mode=False)
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


IMAGE = ("--board", "icebreaker", "--model", "digits")


def test_a_models_image_is_written_behind_the_bitstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bits"
    folder.mkdir()
    (folder / "icebreaker.bin").write_bytes(b"\x00")
    script = tmp_path / "iceprog"
    script.write_text(f'#!/bin/sh\nfor each; do f="$each"; done; echo "$@" >> {tmp_path}/said\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    report = json.loads(invoke(*IMAGE, "--count", "2", "--from", str(folder), "--json"))
    assert report["line"] == "celosia: digits, image ok, class 9, class 1\r\n"
    first, second = (tmp_path / "said").read_text(encoding="utf-8").splitlines()
    assert first == f"{folder}/icebreaker.bin"
    assert second.startswith("-o 0x200000 ")
    assert second.endswith("icebreaker.img")


def test_an_image_that_only_loads_says_no_class(tmp_path: Path) -> None:
    file = tmp_path / "digits.img"
    out = invoke(*IMAGE, "--count", "0", "--image-only", str(file), "--json")
    assert json.loads(out)["line"] == "celosia: digits, image ok\r\n"
    assert file.read_bytes()[:3] == b"CEL"


ROMAN = ("--board", "ulx3s_85f", "--memory", "sdram", "--set", "table_slots=4")
ROMAN += ("--set", "param_depth=1024")
TEXT = ("--board", "ulx3s_85f", "--memory", "sdram", "--model", "tales", "--context", "32")


def test_an_image_goes_on_with_a_text(tmp_path: Path, celosia) -> None:
    prompt, steps = ("--prompt", "one day a red fox"), ("--steps", "6")
    code, output, errors = celosia("run", "tales", *prompt, *steps, "--sim", "golden", "--json")
    assert code == 0, errors
    report = json.loads(output)
    out = invoke(*TEXT, *prompt, *steps, "--image-only", str(tmp_path / "tales.img"), "--json")
    assert json.loads(out)["line"] == f"celosia: tales, image ok: {report['text']}\r\n"
    assert len(report["text"]) == len(prompt[1]) + 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--board", "icebreaker"), "Give --from, a build's folder, or --model, or both"),
        (("--board", "icebreaker", "--image-only", "x"), "Option --image-only needs --model"),
        (
            (*ROMAN, "--model", "numerals", "--prompt", "X"),
            "Model numerals answers sources, which an image in the flash cannot hold; take one "
            "that continues a text",
        ),
        (
            (*IMAGE, "--image-only", "x", "--from", "y"),
            "Options --image-only and --from exclude each other",
        ),
        (
            (*IMAGE, "--memory", "2048", "--image-only", "x"),
            "Model digits needs 26352 bytes of external memory, but the board has 2048",
        ),
        (
            (*IMAGE, "--link", "spi", "--image-only", "x"),
            "An image in the flash needs the serial line, not link spi",
        ),
    ],
)
def test_what_cannot_be_an_image_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        invoke(*words)


def test_the_boards_own_machine_leaves_room_for_the_flashs_reader() -> None:
    board = get_board("icebreaker")
    assert board.config.micro is not None
    smaller = board.config.replace(acc_depth=128)
    assert flashed((board, board.config), "spi")[1] == board.config.replace(requantizer=False)
    assert flashed((board, smaller), "spi")[1] == smaller
