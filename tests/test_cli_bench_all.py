"""Every benchmark by one command: the figures of its lines, and its page."""

import json

import pytest

from celosia.cli.bench_all import Case, bench_all, markdown, measure, read_cases, sections, table

TINY = Case(
    "bench gemm --config tiny --set sparse_lanes=2 16x4 --sparsity 0.5 --sim icarus",
    "cycles",
    "none",
)


def test_a_line_has_its_commands_figures() -> None:
    row = measure(TINY)
    assert row["command"] == f"celosia {TINY.words}"
    assert row["value"] == row["cycles"] >= row["ideal_cycles"] > 0
    assert row["mismatches"] == 0
    page = "\n".join(markdown({"Zeros": table([row])}))
    assert f"| `{row['command']}` | cycles | {row['cycles']} |" in page


def test_a_command_that_fails_is_named() -> None:
    with pytest.raises(RuntimeError, match="--sparsity 2 failed: celosia: Sparsity must be"):
        measure(Case("bench gemm --config tiny 16x8 --sparsity 2"))


def test_of_several_shapes_the_smallest_figure_counts(monkeypatch) -> None:
    shapes = [
        {"utilization": share, "cycles": 10, "ideal_cycles": 9, "mismatches": 1}
        for share in (0.9, 0.8)
    ]
    done = type("Done", (), {"returncode": 0, "stdout": json.dumps({"shapes": shapes})})
    monkeypatch.setattr("celosia.cli.child.subprocess.run", lambda *_given, **_named: done)
    row = measure(Case("bench gemm"))
    assert (row["value"], row["cycles"], row["mismatches"]) == (0.8, 20, 2)


def test_formats_are_a_table_beside_those_that_a_page_has(celosia, monkeypatch, tmp_path) -> None:
    """Two formats on the golden machine; shares are relative to INT8's row."""
    words = "bench formats 16x16x3 INT2 --sim golden --no-area"
    case = Case(words, whole=True)
    row = measure(case)
    assert [entry["format"] for entry in row["rows"]] == ["INT2", "INT2, rank 8"]
    assert row["mismatches"] == 0
    assert row["rows"][0]["bytes"] < row["rows"][1]["bytes"]
    page = tmp_path / "page.md"
    page.write_text("\n".join(markdown({"Zeros": "| old |", "Formats": "| older |"})))
    monkeypatch.setattr("celosia.cli.bench_all.measure", lambda _case: row)
    code, _, _ = celosia("bench", "all", "formats", "--out", page, "--json")
    parts = sections(page.read_text())
    assert code == 0
    assert parts["Zeros"] == "| old |"
    assert parts["Formats"].startswith(f"`celosia {words}`\n\n| format | weights | cycles |")
    assert "| INT2, rank 8 | streamed |" in parts["Formats"]


def test_headings_and_formats_that_are_not_there_are_refused(celosia) -> None:
    for words, message in (
        (("all", "x9"), "No heading has 'x9'; known headings are Matrix products, "),
        (("formats", "int9"), "No format is named 'int9'; known formats are INT8, INT7"),
    ):
        code, output, errors = celosia("bench", *words)
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert message in errors


def test_mismatches_end_with_code_1_after_the_page(celosia, monkeypatch, tmp_path) -> None:
    row = {"command": "x", "figure": "cycles", "value": 3, "mismatches": 1}
    monkeypatch.setattr("celosia.cli.bench_all.measure", lambda _case: row)
    code, output, _ = celosia("bench", "all", "--out", tmp_path / "page.md", "--json")
    assert code == 1
    assert json.loads(output)["mismatches"] == sum(map(len, read_cases().values()))
    page = (tmp_path / "page.md").read_text()
    assert all(f"## {heading}" in page for heading in read_cases())


def test_no_work_where_the_page_cannot_be_written(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("celosia.cli.bench_all.measure", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is not a folder"):
        bench_all.main(["--out", str(tmp_path / "file" / "page.md")], standalone_mode=False)
