"""Files that a public forge reads: forms, workflow, container and citation; how to install."""

import re
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from celosia.cli.main import celosia
from celosia.fpga.boards import LEDS

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
CONTAINER = (ROOT / "Containerfile").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
INSTALL = re.compile(r"apt-get install -y --no-install-recommends ([a-z0-9 -]+)")


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def job() -> dict:
    (one,) = read(WORKFLOW)["jobs"].values()
    return one


def test_workflow_and_container_call_the_same_script() -> None:
    runs = [step["run"] for step in job()["steps"] if "run" in step]
    (command,) = re.findall(r'^CMD \["(.+)"\]$', CONTAINER, re.MULTILINE)
    assert runs[-1] == command == ".ci/run"
    script = ROOT / command
    assert script.stat().st_mode & 0o111
    assert re.findall(r"^make (\w+)$", script.read_text(encoding="utf-8"), re.MULTILINE) == [
        "setup",
        "lint",
        "test",
    ]


def test_workflow_and_container_have_the_same_image_and_packages() -> None:
    (image,) = re.findall(r"^FROM (\S+)$", CONTAINER, re.MULTILINE)
    assert job()["container"] == image
    (packages,) = INSTALL.findall(CONTAINER.replace("\\\n", "\n"))
    first = next(step["run"] for step in job()["steps"] if "run" in step)
    assert INSTALL.findall(first) == [packages.strip()]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_whole(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names) >= 5
    for field in fields:
        assert field["type"] in ("input", "textarea", "dropdown")
        assert field["attributes"]["label"]
    assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_names_commands_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("--port PORT ", "")
    for line in re.findall(r"celosia (\w+(?: \w+)*)", text):
        words = line.split()
        command: click.Command | None = celosia
        while isinstance(command, click.Group) and words:
            command = command.get_command(click.Context(command), words.pop(0))
        assert command is not None, line


def test_the_board_report_asks_for_each_step_of_bringing_a_board_up() -> None:
    form = (ROOT / ".github" / "ISSUE_TEMPLATE" / "board_report.yml").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "for_makers.md").read_text(encoding="utf-8")
    for command in ("build", "flash", "host", "info", "selftest", "run build/digits"):
        assert command in form
        assert command in page
    for led in LEDS:
        assert led in form
        assert f"`{led}`" in page


def test_the_citation_is_that_of_the_package() -> None:
    citation = read(ROOT / "CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for field in ("version", "license"):
        assert citation[field] == project[field]
    assert citation["authors"] == project["authors"]
    assert citation["cff-version"] == "1.2.0"


def test_nothing_installs_from_an_index() -> None:
    assert len(PAGES) > 50
    rooms = ("arch", "hdl", "sim", "generators", "tb", "fpga", "celosia", "cli", "tools")
    for page in [*PAGES, *(path for room in rooms for path in (ROOT / room).rglob("*.py"))]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"pip install (?:-\S+ )*'?celosia", text), page
