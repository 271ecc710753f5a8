"""A list of bad inputs: each is refused with exit code 2 and one sentence, within 5 s.

A part of the list runs in `make test`, the whole of it among the long tests.
"""

import json
import struct
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from celosia.tb.verify.fuzz import file_seeds

LISTED = tomllib.loads((Path(__file__).parent / "data" / "bad_inputs.toml").read_text("utf-8"))
Write = Callable[[Path], tuple[str, ...]]
EVERY = 9
"""One of this number of cases runs in `make test`."""
TEXTS = ("run", "m", "--config", "tiny", "--sim", "golden")


def model(kind: str, folder: Path) -> Path:
    file_seeds._model(kind, folder / "m", np.random.default_rng(1))
    return folder / "m"


def with_settings(kind: str, change: Callable[[dict], object]) -> Write:
    def write(folder: Path) -> tuple[str, ...]:
        path = model(kind, folder) / "config.json"
        settings = json.loads(path.read_text())
        change(settings)
        path.write_text(json.dumps(settings))
        return ("inspect", "m")

    return write


def with_content(name: str, content: str) -> Write:
    def write(folder: Path) -> tuple[str, ...]:
        (model("llama", folder) / name).write_bytes(content.encode("utf-8"))
        return ("inspect", "m")

    return write


def with_index(name: object) -> Write:
    def write(folder: Path) -> tuple[str, ...]:
        path = model("llama", folder)
        (path / "model.safetensors").rename(path / "a.safetensors")
        tensors = file_seeds._TABLE["llama"]["tensors"]
        listed = dict.fromkeys(tensors, "a.safetensors") | {next(iter(tensors)): name}
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
        return ("inspect", "m")

    return write


def with_header(header: list[int]) -> Write:
    def write(folder: Path) -> tuple[str, ...]:
        seed = file_seeds._llama2c(folder, np.random.default_rng(1))
        data = (folder / "m.bin").read_bytes()
        (folder / "m.bin").write_bytes(struct.pack("<7i", *header) + data[28:])
        return seed.words

    return write


def with_texts(name: str, text: str) -> Write:
    def write(folder: Path) -> tuple[str, ...]:
        seed = file_seeds._texts(folder, np.random.default_rng(1))
        (folder / name).write_bytes(text.encode())
        return (*seed.words, "--calibration", "c.txt") if name == "x.txt" else seed.words

    return write


def with_configuration(text: str) -> Write:
    def write(folder: Path) -> tuple[str, ...]:
        (folder / "c.toml").write_text(text + "\n")
        return ("inspect", "digits-simplified", "--config", "c.toml")

    return write


def cases() -> Iterator[tuple[str, Write]]:
    """Yield each case's name, and a function that writes its files and returns the words."""
    for kind, keys in LISTED["settings"].items():
        for key, values in keys.items():
            for value in values:
                change = with_settings(
                    kind, lambda settings, k=key, v=value: settings.update({k: v})
                )
                yield f"{kind} {key} = {value!r}", change
    for kind, keys in LISTED["missing"].items():
        for key in keys:
            yield (
                f"{kind} without {key}",
                with_settings(kind, lambda settings, k=key: settings.pop(k)),
            )
    for name, contents in LISTED["contents"].items():
        for content in contents:
            yield f"{name} of {content!r}", with_content(name, content)
    for name in LISTED["index"]["names"]:
        yield f"index of {name!r}", with_index(name)
    for header in LISTED["llama2c"]["headers"]:
        yield f"llama2.c of {header}", with_header(header)
    for text in LISTED["labels"]["texts"]:
        yield f"labels of {text!r}", with_texts("y.txt", text)
    for text in LISTED["labels"]["sentences"]:
        yield f"sentences of {text!r}", with_texts("x.txt", text)
    for text in LISTED["configuration"]["fields"]:
        yield f"configuration of {text!r}", with_configuration(text)
    for line in LISTED["words"]["lines"]:
        yield line, lambda _folder, line=line: tuple(line.split(" "))


CASES = dict(cases())


def check_refused(celosia, monkeypatch, tmp_path: Path, names: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    wrong = []
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = CASES[name](folder)
        before = sorted(folder.rglob("*"))
        monkeypatch.chdir(folder)
        began = time.process_time()
        code, output, errors = celosia(*words)
        seconds = time.process_time() - began
        sentence = errors.startswith("celosia: ") and errors.count("\n") == 1 and not output
        if code != 2 or not sentence or seconds > 5 or sorted(folder.rglob("*")) != before:
            wrong.append(f"{name}: exit code {code} after {seconds:.1f} s: {errors[-400:]}{output}")
    assert not wrong, "\n".join(wrong)


def test_there_are_four_hundred() -> None:
    assert len(CASES) >= 400


@pytest.mark.parametrize("part", range(3))
def test_a_part_of_the_bad_inputs_is_refused(celosia, monkeypatch, tmp_path, part: int) -> None:
    check_refused(celosia, monkeypatch, tmp_path, [*CASES][::EVERY][part::3])


@pytest.mark.long
@pytest.mark.parametrize("part", range(EVERY))
def test_bad_inputs_are_refused(celosia, monkeypatch, tmp_path: Path, part: int) -> None:
    check_refused(celosia, monkeypatch, tmp_path, [*CASES][part::EVERY])
