"""The tutorials: a page's files are written and its commands run, in its order."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from celosia.tb.machine.toolchain import missing_tools
from tests.support.longer import longer

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?://|#) file: (\S+)\n")
PORT = "/dev/pts/5"
"""The port that a page writes for that of its board."""

SHORTER = {
    "--sim golden --inputs": "--sim golden --count 9 --inputs",
    "│ count                │ 100 ": "│ count                │ 9 ",
    "--count 10 ": "--count 2 ",
    "--count 5": "--count 1",
    # test_cli_compile.py runs such a testbench.
    "cd vibration && vvp -n test.vvp\n": "",
}
"""Words of the page own_model, and what is in their place where it is followed on fewer inputs."""

ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    "PYTHONPATH": str(ROOT),
}

pytestmark = pytest.mark.skipif(bool(missing_tools("icarus")), reason="Icarus is not installed")


def blocks(page: str) -> list[tuple[str, str]]:
    """Return a page's blocks: their languages and their texts."""
    return BLOCK.findall((TUTORIALS / f"{page}.md").read_text(encoding="utf-8"))


def run(line: str, folder: Path) -> str:
    """Run a line and return its output."""
    done = subprocess.run(
        line, shell=True, cwd=folder, env=ENVIRONMENT, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def board(page: str) -> Iterator[str]:
    """Run the command of a page that simulates a board, and return the path of its port."""
    (line,) = (line for _, text in blocks(page) for line in text.splitlines() if line.endswith("&"))
    process = subprocess.Popen(
        line.removesuffix("&").split(), stdout=subprocess.PIPE, encoding="utf-8", env=ENVIRONMENT
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stdout.close()


def follow(page: str, folder: Path, port: str = "", shorter: dict[str, str] | None = None) -> None:
    """Follow a page, and compare outputs where the page gives them.

    ``shorter`` maps words of the page to those in their place.
    """
    whole = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    assert all(words in whole for words in shorter or {})
    output, compared = "", 0
    shutil.copytree(ROOT / "examples", folder / "examples")
    for language, text in blocks(page):
        for words, others in (shorter or {}).items():
            text = text.replace(words, others)
        file = FILE.match(text)
        if file:
            (folder / file[1]).write_text(text, encoding="utf-8")
        elif language == "sh":
            lines = text.replace("\\\n", " ").splitlines()
            output = "".join(
                run(line.replace(PORT, port), folder) for line in lines if line[-1] != "&"
            )
        elif language == "text":
            wanted = {" ".join(line.split()) for line in text.splitlines()}
            assert wanted <= {" ".join(line.split()) for line in output.splitlines()}, output
            compared += 1
    assert compared


@pytest.mark.parametrize("page", ["softmax_in_verilog", "own_bench", "own_design"])
def test_a_page_can_be_followed(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
@pytest.mark.parametrize(
    "shorter", [SHORTER, *longer(None)], ids=lambda shorter: "shorter" if shorter else "whole"
)
def test_a_model_comes_onto_a_board(tmp_path: Path, shorter: dict[str, str] | None) -> None:
    with board("own_model") as port:
        follow("own_model", tmp_path, port, shorter)


def test_every_tutorial_is_followed() -> None:
    pages = {path.stem for path in TUTORIALS.glob("*.md")}
    assert pages == {"index", "own_model", "softmax_in_verilog", "own_bench", "own_design"}
