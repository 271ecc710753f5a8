"""celosia flash: the board's loader, and what is said without it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.flash import flash


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
