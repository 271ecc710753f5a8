"""Pages of the boards: current with the definitions and reports, and short."""

import re
import shutil
from pathlib import Path

import pytest

from celosia.arch.errors import InputError
from celosia.arch.support.pages import between
from celosia.fpga.boards import BOARDS, get_board
from celosia.fpga.flash import load_command
from tools.board_pages import FACTS, FOLDER, INDEX, pages

PAGES = pages()
REMEDY = "python -m tools.board_pages makes them anew"
MOST_WORDS = 2000
UNRUN = "No physical board has run"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], REMEDY


def test_every_board_has_a_page() -> None:
    assert tuple(FACTS) == BOARDS
    assert set(PAGES) == {INDEX, *(FOLDER / f"{name}.md" for name in BOARDS)}


def test_every_page_says_that_no_board_has_run_and_is_short() -> None:
    for path in [INDEX, *FOLDER.glob("*.md")]:
        words = path.read_text(encoding="utf-8")
        assert UNRUN.lower() in " ".join(words.lower().split()), path
        own = re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", "", words, flags=re.DOTALL)
        assert len(own.split()) <= MOST_WORDS, path


def test_a_page_has_every_pin_of_its_board() -> None:
    for name in BOARDS:
        (diagram,) = re.findall(r"^computer.*?^```", PAGES[FOLDER / f"{name}.md"], re.M | re.S)
        for signal, pin in get_board(name).pins.items():
            assert re.search(rf" {signal} +{pin.name}(?:,|$)", diagram, re.M), (name, signal)


def test_the_first_loader_is_the_one_that_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name)
    for name in BOARDS:
        board = get_board(name)
        file = Path(f"build/{name}/{name}.{board.device.family.bitstream}")
        line = " ".join(load_command(board, file))
        assert f"The second command runs `{line}`." in PAGES[FOLDER / f"{name}.md"]


def test_an_index_without_a_place_is_refused() -> None:
    with pytest.raises(InputError, match="The page must have one place between"):
        between("nothing", "table", "new")
