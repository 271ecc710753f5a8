"""Damaged files: seeds that are valid, damage that is found again, and faults that are seen."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from celosia.cli import file_cases
from celosia.cli.main import main
from celosia.generators.campaign.case import Case
from celosia.tb.verify.fuzz import files
from celosia.tb.verify.fuzz.damage import NASTY, change, damage
from celosia.tb.verify.fuzz.file_seeds import FORMATS
from celosia.tb.verify.fuzz.files import Ended, judged

QUICK = ("safetensors", "settings", "index", "onnx", "llama2c", "wav")


def undamaged(tmp_path: Path, name: str) -> Ended:
    file_cases._import_all()
    folder, outside = tmp_path / "in", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    seed = FORMATS[name](folder, np.random.default_rng(1))
    return files._forked(main, seed.words, folder, outside)


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in FORMATS],
)
def test_undamaged_files_are_taken(tmp_path: Path, name: str) -> None:
    ended = undamaged(tmp_path, name)
    assert (ended.code, ended.errors, judged(ended)) == (0, "", "")


def test_a_case_is_the_same_again_and_refused_in_a_sentence() -> None:
    fields = (("format", "settings"),)
    results = [file_cases.run(Case("files", 1, index, fields)) for index in (0, 1, 2, 0, 1, 2)]
    assert [result["way"] for result in results[:3]] == [result["way"] for result in results[3:]]
    assert [result["mismatch"] for result in results] == [""] * 6
    assert any(result["refusal"] for result in results)


@pytest.mark.parametrize("name", ["x.json", "x.toml", "x.safetensors", "x.onnx", "x.npy", "x"])
def test_damage_is_many_ways_and_the_same_again(tmp_path: Path, name: str) -> None:
    made = {}
    for turn in range(2):
        for index in range(30):
            folder = tmp_path / f"{turn}_{index}"
            folder.mkdir()
            rng = np.random.default_rng(7)
            if name == "x.npy":
                np.save(folder / name, np.zeros(4))
            elif name == "x.json":
                (folder / name).write_text('{"a": [1, 2], "b": {"c": "d"}}')
            elif name == "x.toml":
                (folder / name).write_text('a = 1\nb = "c"\n')
            else:
                kind = {"x.safetensors": "safetensors", "x.onnx": "onnx", "x": "llama2c"}[name]
                seed = FORMATS[kind](folder, rng)
                (folder / seed.targets[0]).rename(folder / name)
            way = damage(folder / name, folder / "other", np.random.default_rng(index))
            path = folder / name
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else way
            made.setdefault(index, []).append((way, content))
    assert all(first == second for first, second in made.values())
    assert len({content for content, _ in made.values()}) > 15
    assert len({way for (way, _), _ in made.values()}) > 1


def test_a_change_leaves_the_tree_and_draws_every_value() -> None:
    tree, changed = {"a": [1, {"b": 2}], "c": "x"}, set()
    for seed in range(1500):
        changed.add(repr(change(tree, np.random.default_rng(seed))))
    assert tree == {"a": [1, {"b": 2}], "c": "x"}
    assert all(any(repr(value) in text for text in changed) for value in NASTY)


FINE = "celosia: no\n"


@pytest.mark.parametrize(
    ("ended", "part"),
    [
        (Ended(0, 9.0, "x", "", ""), ""),
        (Ended(1, 9.0, "x", "", ""), ""),
        (Ended(2, 1.0, "", FINE, ""), ""),
        (Ended(2, 1.0, "", FINE, "/etc/passwd"), "A file outside the folder was opened: /etc/pa"),
        (Ended(None, 20.0, "", "", ""), "The command did not end: killed after 20.0 s"),
        (Ended(70, 1.0, "", "Traceback\nx\n", ""), "Exit code 70: Traceback | x"),
        (Ended(0, 1.0, "", "Traceback\nx\n", ""), "Exit code 0: Traceback | x"),
        (Ended(-11, 1.0, "", "", ""), "Exit code -11"),
        (Ended(0, 1.0, "\x1b[31m", "", ""), "Control characters are printed"),
        (Ended(2, 5.5, "", FINE, ""), "Refused after 5.5 s of processor time: celosia: no"),
        (Ended(2, 1.0, "", f"w\n{FINE}", ""), "Refused with more than a sentence"),
        (Ended(2, 1.0, "x", FINE, ""), "Refused with more than a sentence"),
        (Ended(2, 1.0, "", "no\n", ""), "Refused with more than a sentence"),
        (Ended(2, 1.0, "", "celosia: this takes more memory than this computer has\n", ""), "Mem"),
    ],
)
def test_what_is_wrong_is_told(ended: Ended, part: str) -> None:
    assert judged(ended).startswith(part)
    assert bool(judged(ended)) == bool(part)


def leave(code: int) -> None:
    raise SystemExit(code)


def reads_outside() -> None:
    (Path.cwd().parent / "outside" / "x").read_bytes()


def reads_a_device() -> None:
    with open("/dev/zero", "rb") as file:
        file.read(1)


def takes_memory() -> None:
    bytearray(1 << 36)


def computes() -> None:
    while True:
        pass


def says() -> None:
    print("said", file=sys.stderr)
    leave(2)


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (reads_outside, "A file outside the folder was opened: "),
        (reads_a_device, "A file outside the folder was opened: /dev/zero"),
        (takes_memory, "Exit code 99: Traceback: MemoryError"),
        (computes, "The command did not end: killed after"),
        (lambda: time.sleep(60), "The command did not end: killed after"),
        (says, "Refused with more than a sentence: 'said\\n', ''"),
        (lambda: leave(0), ""),
        (lambda: leave(3), "Exit code 3"),
    ],
)
def test_faults_of_a_command_are_seen(tmp_path: Path, monkeypatch, command, part: str) -> None:
    monkeypatch.setattr(files, "_MOST_SECONDS", 1)
    monkeypatch.setattr(files, "_WALL", 4.0 if command is computes else 1.0)
    folder, outside = tmp_path / "in", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "x").write_text("x")
    verdict = judged(files._forked(command, ["x"], folder, outside))
    assert verdict.startswith(part)
    assert bool(verdict) == bool(part)
