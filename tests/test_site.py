"""The documentation's site, and the timing diagrams on it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.longer import longer
from tools.timing import TIMING, simulate, text
from tools.timing_scenarios import SCENARIOS
from tools.wavejson import wave

DOCS = Path(__file__).parents[1] / "docs"


# Furo, the site's theme, takes half of the time: it resolves all titles again for each page.
@pytest.mark.parametrize("theme", ["basic", *longer("furo")])
def test_the_site_is_built_without_a_warning(tmp_path: Path, theme: str) -> None:
    words = ["-q", "-W", "--keep-going", "-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path)]
    words += ["-D", f"html_theme={theme}"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], cwd=DOCS.parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    for page in ("index", "commands", "api/hdl", "units/control"):
        assert (tmp_path / f"{page}.html").is_file()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_diagram_is_what_its_unit_does(name: str) -> None:
    diagram = text(simulate(SCENARIOS[name]()))
    kept = (TIMING / f"{name}.json").read_text(encoding="utf-8")
    assert diagram == kept, "python -m tools.timing_scenarios makes them anew"
    waves = [signal["wave"] for signal in json.loads(diagram)["signal"]]
    assert len({len(letters) for letters in waves}) == 1


def test_every_page_of_a_unit_has_a_diagram() -> None:
    shown = []
    for page in sorted((DOCS / "units").glob("*.md")):
        names = re.findall(r"^```{timing} (\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert names, page
        shown += names
    assert sorted(shown) == sorted(SCENARIOS)


def test_waves_tell_changes_and_what_is_not_known() -> None:
    assert wave("n", [15, 2, 2], 4, "signed") == {"name": "n", "wave": "==.", "data": ["-1", "2"]}
    assert wave("n", [15, 2, 2], 4, "hex", [0, 1, 1])["wave"] == "x=."
    assert wave("b", [0, 0, 1], 1, "bit", [1, 0, 1])["wave"] == "0x1"
