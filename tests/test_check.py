"""`python -m tools.check` runs the tests that are nearest to a change."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.check import ROOT, Graph, distances, importers, main, sources

TEXTS = {
    "hdl/ram.py": "import amaranth",
    "hdl/bank.py": "from celosia.hdl import ram\nSHAPES = 'shapes.toml'",
    "celosia/library.py": "from celosia.hdl.bank import Bank",
    "tests/test_ram.py": "from celosia.hdl.ram import Ram",
    "tests/test_bank.py": "import celosia.hdl.bank",
    "tests/test_library.py": "from celosia.library import load",
    "tests/test_other.py": "import numpy",
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Return who imports each of this project's modules."""
    return importers(sources())


@pytest.mark.parametrize(
    ("file", "steps"),
    [
        ("hdl/ram.py", {"ram": 1, "bank": 2, "library": 3}),
        ("hdl/bank.py", {"bank": 1, "library": 2}),
        ("hdl/shapes.toml", {"bank": 1, "library": 2}),
        ("tests/test_other.py", {"other": 0}),
        ("docs/nowhere.md", {}),
    ],
)
def test_a_distance_counts_imports(file: str, steps: dict[str, int]) -> None:
    expected = {f"tests/test_{name}.py": step for name, step in steps.items()}
    assert distances([file], TEXTS) == expected


def test_the_imports_of_this_project_are_found(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.check.importers", lambda _texts: graph)
    texts = sources()
    steps = distances(["sim/softmax.py"], texts)
    assert steps["tests/test_sim_softmax.py"] == 1
    assert 1 < steps["tests/test_texts.py"] < 8
    unseen = {name for name in texts if Path(name).match("tests/test_*.py")} - steps.keys()
    assert "tests/test_check.py" in unseen


@pytest.mark.parametrize("failing", [True, False])
def test_the_run_ends_when_the_time_is_over(tmp_path: Path, failing: bool) -> None:
    slow = "import time\nimport pytest\n\n\n"
    slow += (
        "@pytest.mark.parametrize('case', range(90))\ndef test_slow(case):\n    time.sleep(0.5)\n"
    )
    slow += f"    assert not {failing} or case\n"
    (tmp_path / "test_slow.py").write_text(slow, encoding="utf-8")
    script = "import pytest, sys\nfrom tools.check import Limit\nsys.exit(pytest.main(sys.argv[1:]"
    script += ", [Limit(1)]))"
    words = ["-q", "-n", "2", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert "farther tests did not run" in done.stdout
    assert done.returncode == failing


def test_the_list_names_distances(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.check.importers", lambda _texts: graph)
    monkeypatch.setattr("tools.check.changed", lambda _base: ["sim/softmax.py", "sim/gone.py"])
    monkeypatch.setattr(sys, "argv", ["check", "--list"])
    assert main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("1 changed files, ")
    assert "  1  tests/test_sim_softmax.py\n" in printed


@pytest.mark.parametrize("words", [("tools.check", "--base"), ("tools.docstrings",)])
def test_an_unknown_commit_is_refused(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *words, "nowhere"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("git ")
    assert done.stderr.count("\n") == 1
