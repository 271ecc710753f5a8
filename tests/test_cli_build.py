"""celosia build: the output for the user."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from celosia.cli.main import celosia as tree
from celosia.fpga import build as flow
from celosia.fpga.boards import BOARDS, get_board
from celosia.fpga.build import Build, Task

RATE = {"cycles_per_inference": 8765.0, "inferences_per_second": 9127.2}
FOUND = {
    "board": "ulx3s_85f",
    "config": "small",
    "luts": 2884,
    "ffs": 4466,
    "multipliers": 64,
    "block_rams": 0,
    "fmax_mhz": 131.08,
    "seed": 2,
    "clock_mhz": 80.0,
}


def invoke(*words: str) -> str:
    result = CliRunner(catch_exceptions=False).invoke(
        tree, ["build", *words], standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Let a build take no time, and return the requested builds."""
    asked: list[Task] = []

    def fake(task: Task, *_: object) -> Build:
        asked.append(task)
        return Build(dict(FOUND), {"x.bit": b"\x00"})

    monkeypatch.setattr(Task, "build", fake)
    monkeypatch.setattr("celosia.cli.build.rates", lambda *_: RATE)
    return asked


def test_json_is_one_object(built: list[Task], tmp_path: Path) -> None:
    words = ["--unit", "systolic_array", "--board", "ulx3s_85f", "--config", "small"]
    out = invoke(*words, "--seed", "2-4", "--out", str(tmp_path), "--json")
    assert json.loads(out) == FOUND
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "x.bit"]
    assert json.loads((tmp_path / "report.json").read_text()) == FOUND
    task = built[0]
    assert (type(task.unit).__name__, task.config.name, task.board.name) == (
        "SystolicArray",
        "small",
        "ulx3s_85f",
    )
    assert list(task.seeds) == [2, 3, 4]


def test_a_board_has_its_machine(built: list[Task], tmp_path: Path) -> None:
    out = invoke(
        "--board", "ulx3s_85f", "--set", "lanes=4", "--clock", "70", "--out", str(tmp_path)
    )
    config = built[0].config
    assert (config.array.rows, config.array.cols, config.vector.lanes, built[0].mhz) == (
        12,
        8,
        4,
        70.0,
    )
    assert "131.1" in out
    assert "8,765" in out
    assert json.loads((tmp_path / "report.json").read_text()) == FOUND | RATE


def test_what_a_folder_has_of_the_same_design_is_not_placed_again(
    built: list[Task], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["--board", "icebreaker", "--out", str(tmp_path)]
    board = get_board("icebreaker")
    design = Task(config=board.config, board=board).design()
    old = {"cycles_per_token": 3.0, "no_inference": "why", "cycles_per_inference": None}
    report, bitstream = tmp_path / "report.json", tmp_path / "icebreaker.bin"
    for there, bits, times in (
        (design, b"\x00", 0),
        ("another", b"\x00", 1),
        (design, b"", 2),
    ):
        report.write_text(json.dumps(FOUND | old | {"design": there, "seconds": 9}))
        if bits:
            bitstream.write_bytes(bits)
        else:
            bitstream.unlink()
        invoke(*words)
        assert len(built) == times
        kept = {} if times else {"design": design, "seconds": 9}
        assert json.loads(report.read_text()) == FOUND | kept | RATE
    for times, unreadable in enumerate(("{", "[]"), 3):
        report.write_text(unreadable)
        bitstream.write_bytes(b"\x00")
        invoke(*words)
        assert len(built) == times


def test_an_unknown_board_is_refused(tmp_path: Path) -> None:
    message = rf"^Unknown board 'ulx3s'; did you mean ulx3s_85f\? known are {', '.join(BOARDS)}$"
    with pytest.raises(ValueError, match=message):
        invoke("--board", "ulx3s", "--out", str(tmp_path))


def test_a_clock_that_stands_still_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^The clock must be above 0 and at most 1000 MHz, not -5$"
    ):
        invoke("--board", "ulx3s_85f", "--clock", "-5", "--out", str(tmp_path))


def test_what_does_not_fit_is_refused_before_placement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(flow, "synthesize", lambda *_: {"LUT4": 90000, "MULT18X18D": 64})
    monkeypatch.setattr(flow, "place", lambda *_a, **_k: pytest.fail("it was placed"))
    message = (
        "^Board ulx3s_85f has 83,640 LUT4s, but the design needs 90,000; "
        "take a smaller configuration$"
    )
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=message):
        invoke("--board", "ulx3s_85f", "--unit", "table", "--out", str(out))
    assert not out.exists()
