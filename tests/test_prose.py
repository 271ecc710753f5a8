"""The prose checker: findings at their lines, none in code, exceptions that only fall."""

from pathlib import Path

import pytest

from tools import docstrings, prose

SENTENCE = " ".join(["word"] * 31)


@pytest.fixture(scope="module")
def config():
    return prose._register()


def checked(config, folder: Path, name: str, text: str) -> list[tuple[int, str]]:
    """Return the findings of a file with a text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return prose.findings(path, config)


def test_a_page(config, tmp_path: Path) -> None:
    text = f"# Title\n\nIt says what it is.\n\n- {SENTENCE}.\n- Short.\n"
    assert checked(config, tmp_path, "page.md", text) == [
        (3, "Say the noun that is meant for 'what'."),
        (5, "A sentence of 31 words."),
    ]


def test_code_and_links_are_no_prose(config, tmp_path: Path) -> None:
    text = "Use `what` and [it](what.md).\n\n```sh\nwhat who lies\n```\n<!-- what -->\n"
    assert checked(config, tmp_path, "page.md", text) == []


def test_a_module(config, tmp_path: Path) -> None:
    text = (
        '"""Tell so many."""\n\nwhat = "who"  # what\n\n\ndef f(what):\n    """Return what is."""\n'
        '    raise ValueError(f"Value {what} lies {what!r}, "\n        "of its own")\n'
    )
    assert [line for line, _ in checked(config, tmp_path, "module.py", text)] == [1, 7, 8, 9]


def test_more_findings_than_exceptions_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prose, "tree", lambda: [prose.ROOT / "tools" / "prose.py"])
    monkeypatch.setattr(prose, "findings", lambda *_: [(1, "x"), (2, "y")])
    for allowed, status in ((1, 1), (2, 0), (3, 0)):
        monkeypatch.setitem(prose.RULES["exceptions"], "tools", allowed)
        assert prose.main([]) == status
    printed = capsys.readouterr().out
    assert "tools: 2 findings, 1 are allowed" in printed
    assert "tools: 2 findings; lower its exceptions in prose.toml (3)" in printed


def test_a_commit_draws_its_docstrings() -> None:
    drawn = docstrings.sample("a" * 40)
    assert len({place for place, _ in drawn}) == docstrings.SIZE
    assert all(text for _, text in drawn)
    assert docstrings.sample("a" * 40) == drawn
    assert docstrings.sample("b" * 40) != drawn
    names = [place for place, _ in docstrings.public(Path(docstrings.__file__))]
    assert names == [
        "tools/docstrings.py",
        "tools/docstrings.py: public",
        "tools/docstrings.py: sample",
        "tools/docstrings.py: main",
    ]


def test_a_folder_lists_the_findings_of_its_files(capsys, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("It says what it is.\n", encoding="utf-8")
    monkeypatch.setattr(prose, "tree", lambda: [tmp_path / "page.md", Path("/elsewhere.md")])
    assert prose.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"{tmp_path / 'page.md'}:1: Say the noun that is meant for 'what'.\n"
    )
