"""Every board's build by one command: kept reports, and the tables that are made of them."""

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from celosia.arch.link import fingerprint
from celosia.arch.support.cache import ROOT
from celosia.cli.bench_boards import bench_boards, build_case
from celosia.cli.board_cases import CASES, MACHINES, Case, read_reports
from celosia.cli.board_tables import PAGES, TODAY, refresh
from celosia.cli.main import celosia
from celosia.fpga.boards import BOARDS

CASE = Case("ulx3s_25f", "table", "tiny")
BUILT = {
    "board": "ulx3s_25f",
    "device": "LFE5U-25F",
    "config": "tiny",
    "luts": 20100,
    "ffs": 12000,
    "multipliers": 28,
    "block_rams": 50,
    "available": {"luts": 24288, "ffs": 24288, "multipliers": 28, "block_rams": 56},
    "fmax_mhz": 76.54,
    "clock_mhz": 75.0,
    "cycles_per_inference": 31977.0,
    "inferences_per_second": 2345.4,
}
PAGE = "a\n<!-- boards: begin -->\nold\n<!-- boards: end -->\nz\n"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Let a build take no time, and return the commands that were run."""
    called: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        called.append(command[3:-3])
        report = BUILT | {"design": CASE.design()}
        return subprocess.CompletedProcess(command, 0, json.dumps(report), "")

    monkeypatch.setattr("celosia.cli.child.subprocess", SimpleNamespace(run=run))
    return called


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the digest of a design be the case's fields: no machine is converted for it."""
    monkeypatch.setattr(Case, "design", Case.__repr__)


def test_a_build_is_made_once_and_again_where_the_design_changes(
    runs: list[list[str]], tmp_path: Path
) -> None:
    words = ["--board", "ulx3s_25f", "--unit", "table", "--config", "tiny", "--seed", "1"]
    build_case(CASE, tmp_path)
    build_case(CASE, tmp_path)
    assert runs == [["build", *words]]
    (file,) = tmp_path.iterdir()
    assert file.name == "ulx3s_25f-table-tiny.json"
    report = json.loads(file.read_text())
    assert report == BUILT | {
        "command": f"celosia build {' '.join(words)}",
        "design": CASE.design(),
        "sources": TODAY,
    }
    file.write_text(json.dumps(report | {"design": "another"}))
    build_case(CASE, tmp_path)
    assert len(runs) == 2


def test_a_design_changes_with_all_that_goes_into_it() -> None:
    cases = [
        CASE,
        Case("ulx3s_45f", "table", "tiny"),
        Case("ulx3s_25f", "argmax", "tiny"),
        Case("ulx3s_25f", "table", "small"),
        Case("ulx3s_25f", "table", "tiny", 99.0),
        Case("ulx3s_25f", None, "micro"),
        Case("ulx3s_25f", None, "micro", memory="4096"),
        Case("ulx3s_25f", "table", "tiny", seed=2),
        Case("ulx3s_25f", "table", "tiny", seeds=2),
    ]
    assert len({case.design() for case in cases}) == len(cases)


def test_a_report_that_celosia_build_wrote_is_taken(runs: list[list[str]], tmp_path: Path) -> None:
    kept = tmp_path / CASE.file
    kept.write_text(json.dumps(BUILT | {"design": CASE.design()}))
    build_case(CASE, tmp_path)
    assert runs == []
    assert json.loads(kept.read_text())["sources"] == TODAY


@pytest.mark.usefixtures("named")
def test_what_does_not_fit_is_told_in_its_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = "Synthesis\ncelosia: Board ulx3s_25f has 56 block RAMs, but the design needs 57\n"
    done = subprocess.CompletedProcess([], 2, "", said)
    monkeypatch.setattr("celosia.cli.child.subprocess", SimpleNamespace(run=lambda *_, **__: done))
    build_case(Case("ulx3s_25f"), tmp_path)
    reports = read_reports(tmp_path)
    page = refresh(PAGE, reports, "page")
    dashes = " | ".join("-" * 9)
    assert f"| ulx3s_25f | LFE5U-25F | ulx3s_25f | today's | {dashes} |\n" in page
    assert (
        "\n`ulx3s_25f` with `ulx3s_25f`: Board ulx3s_25f has 56 block RAMs, but the design needs "
        "57.\n" in page
    )


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ({"1": 60.0}, "-"),
        ({"1": 62.04, "2": 58.35, "3": 60.5}, "58.35, 60.50, 62.04"),
        ({"1": 62.04, "2": None, "3": 60.5}, "60.50, 61.27, 62.04; 2 of 3 routed"),
    ],
)
def test_the_table_has_the_spread_of_seeds(
    seeds: dict[str, float | None], told: str, tmp_path: Path
) -> None:
    case = Case("ulx3s_25f")
    board = {"board": "ulx3s_25f", "device": "LFE5U-25F", "config": "ulx3s_25f"}
    (tmp_path / case.file).write_text(json.dumps(board | {"fmax_mhz": 62.04, "seeds": seeds}))
    assert f"| 62.04 | {told} |" in refresh(PAGE, read_reports(tmp_path), "page")


def test_tokens_have_a_table_of_the_machines_that_have_room_for_them() -> None:
    tokens = {"cycles_per_token": 4540, "tokens_per_second": 15018, "clock_mhz": 68.18}
    page = refresh(PAGE, {"ulx3s_25f.json": BUILT, "ulx3s_45f.json": BUILT | tokens}, "page")
    first, second = page.split("\n\n| board | machine | clock MHz | cycles per token | ")
    assert "token" not in first
    assert second.count("\n| ") == 1
    assert "| 68.18 | 4,540 | 15,018 | - | - |\n" in second


def test_a_case_tries_its_seeds() -> None:
    words = Case("ulx3s_25f", seed=3, seeds=2).words
    assert words[-2:] == ["--seed", "3-4"]


def test_a_build_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = subprocess.CompletedProcess([], 1, "", "celosia: Synthesis failed\n")
    monkeypatch.setattr("celosia.cli.child.subprocess", SimpleNamespace(run=lambda *_, **__: done))
    with pytest.raises(RuntimeError, match=r"^celosia build --board .* failed: celosia: Synthesis"):
        build_case(CASE, tmp_path)


@pytest.mark.usefixtures("named")
def test_pages_get_the_tables(
    runs: list[list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, reports = tmp_path / "page.md", tmp_path / "reports"
    page.write_text(PAGE)
    monkeypatch.setattr("celosia.cli.bench_boards.PAGES", (page,))
    monkeypatch.setattr("celosia.cli.bench_boards.REPORTS", reports)
    words = ["bench", "boards", "ulx3s_25f", "--json"]
    celosia.main(words, standalone_mode=False)
    assert [command[2] for command in runs] == ["ulx3s_25f"]
    line = (
        "| ulx3s_25f | LFE5U-25F | tiny | - | 20,100 of 24,288 | 12,000 of 24,288 | 28 of 28 "
        "| 50 of 56 | 76.54 | - | 75 | 31,977 | 2,345 |\n"
    )
    text = page.read_text()
    assert text.startswith(
        "a\n<!-- boards: begin -->\n\n| board | device | machine | sources | LUT4s |"
    )
    assert text.endswith(f"{line}\n<!-- boards: end -->\nz\n")
    assert list(json.loads(capsys.readouterr().out)["reports"]) == ["ulx3s_25f.json"]
    celosia.main([*words, "--kept"], standalone_mode=False)
    assert (len(runs), page.read_text()) == (1, text)


@pytest.mark.usefixtures("named")
def test_cycles_are_counted_anew_where_the_machine_is_todays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(candidate for candidate in CASES if candidate.file == "icebreaker.json")
    board, config = case.target()
    machine = f"{fingerprint(config):08x}"
    counted = {"cycles_per_inference": 7.0, "configuration": machine}
    asked = []
    monkeypatch.setattr(
        "celosia.cli.bench_boards.rates", lambda *arguments: asked.append(arguments) or counted
    )
    file, page = tmp_path / case.file, tmp_path / "page.md"
    page.write_text(PAGE)
    monkeypatch.setattr("celosia.cli.bench_boards.PAGES", (page,))
    monkeypatch.setattr("celosia.cli.bench_boards.REPORTS", tmp_path)
    words = ["icebreaker", "--kept"]
    for own, same in (
        ({"design": case.design()}, True),
        ({"design": "older", "configuration": machine}, True),
        ({"design": "older", "configuration": "0"}, False),
        ({"design": "older"}, False),
        ({"design": "older", "configuration": machine, "refused": "why"}, False),
    ):
        there = BUILT | {"board": "icebreaker"} | own
        file.write_text(json.dumps(there))
        bench_boards.main(words, standalone_mode=False)
        report, errors = json.loads(file.read_text()), capsys.readouterr().err
        if same:
            assert asked.pop() == (config, board, BUILT["clock_mhz"])
            assert "inferences_per_second" not in report
            assert (report["cycles_per_inference"], report["luts"]) == (7.0, BUILT["luts"])
            assert report["configuration"] == machine
        else:
            assert report == there
        another = "icebreaker.json is of another machine than today's, and keeps its cycles\n"
        assert errors.endswith(another) == (not same and "refused" not in own)
    assert not asked


REPORTS = ROOT / "docs" / "reports"
QUICK = ("requantizer", "systolic_array")
"""Units of reports whose designs are made in a second or two; `make test-long` makes all."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.file, marks=[] if quick else [pytest.mark.long])
        for case in CASES
        if (REPORTS / case.file).is_file()  # one board is simulated and not placed
        for quick in [case.unit in QUICK and not case.variant]
    ],
)
def test_a_report_says_of_which_sources_its_circuit_is(case: Case) -> None:
    report = json.loads((REPORTS / case.file).read_text("utf-8"))
    assert (report["sources"] == TODAY) == (report["design"] == case.design())


def test_every_row_says_of_which_sources_it_is() -> None:
    page = (ROOT / "docs" / "boards" / "placements.md").read_text("utf-8")
    for report in read_reports(REPORTS).values():
        assert re.fullmatch("today's|commit [0-9a-f]{7,}", report["sources"])
    assert refresh(page, read_reports(REPORTS), "placements.md") == page


def test_a_report_of_other_sources_is_of_the_commit_that_brought_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    case = next(candidate for candidate in CASES if candidate.unit == "requantizer")
    file, page = tmp_path / case.file, tmp_path / "page.md"
    page.write_text(PAGE)
    file.write_text(json.dumps(BUILT | {"design": "older", "sources": TODAY}))
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", case.file], check=True)
    subprocess.run([*git, "commit", "-qm", "a report"], check=True)
    monkeypatch.setattr("celosia.cli.bench_boards.PAGES", (page,))
    monkeypatch.setattr("celosia.cli.bench_boards.REPORTS", tmp_path)
    words = ["requantizer", "--kept"]
    bench_boards.main(words, standalone_mode=False)
    head = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], encoding="utf-8")
    assert json.loads(file.read_text())["sources"] == f"commit {head.strip()}"


def test_no_work_where_there_is_no_place(tmp_path: Path, monkeypatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    message = (
        f"^Page {page} has no place for a table, which begins with <!-- boards: begin --> or "
        "<!-- summary: begin --> or <!-- units: begin -->$"
    )
    monkeypatch.setattr("celosia.cli.bench_boards.PAGES", (page,))
    with pytest.raises(ValueError, match=message):
        bench_boards.main([], standalone_mode=False)
    with pytest.raises(ValueError, match=r"^No build has 'ulx4' in its name$"):
        bench_boards.main(["ulx4"], standalone_mode=False)


def test_the_pages_say_what_the_kept_reports_say() -> None:
    reports = read_reports(ROOT / "docs" / "reports")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert refresh(text, reports, page.name) == text, "celosia bench boards --kept"


def test_every_board_is_built() -> None:
    own = [case for case in CASES if case.unit is case.config is case.memory is None]
    assert [case.board for case in own] == list(BOARDS)


def test_a_machine_with_sdram_is_told_apart() -> None:
    case = next(case for case in MACHINES if case.variant == "sdram")
    assert case.file == "ulx3s_85f-sdram.json"
    assert case.words == ["--board", "ulx3s_85f", "--memory", "sdram", "--seed", "3"]
    board = "ulx3s_85f"
    own = BUILT | {"board": board, "config": board}
    page = refresh(PAGE, {f"{board}.json": own, case.file: own}, "page")
    assert page.count(f"| {board} | LFE5U-25F | {board} | ") == 1
    assert page.count(f"| {board} | LFE5U-25F | {board}, sdram | ") == 1
