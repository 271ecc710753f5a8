"""Folders of compiled models: a changed file, or one of another model, is refused."""

import json
from pathlib import Path

import pytest

import celosia


@pytest.fixture(scope="module")
def digits() -> celosia.Program:
    return celosia.compile(celosia.load("digits"), celosia.config("small"))


def test_an_older_folder_is_refused_with_the_line_to_write(
    digits: celosia.Program, tmp_path: Path
) -> None:
    path = digits.save(tmp_path) / "model.json"
    path.write_text(path.read_text().replace('"format": 3', '"form": 1'))
    with pytest.raises(celosia.InputError) as refused:
        celosia.open(tmp_path)
    assert str(refused.value) == (
        f"Folder {tmp_path} has files of form 1, and form 3 is read; compile it again: "
        f"celosia compile MODEL --out {tmp_path}"
    )


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("output", "rows", 1 << 70),
        ("input", "addr", -1),
        ("input", "columns", 0),
        ("", "batch", 1e308),
        ("", "places", 0),
        ("calls", "encode", {"R31": {"index": "rows", "divide": 0}}),
        ("", "memory_bytes", 1 << 60),
        ("", "memory_bytes", float("inf")),
    ],
)
def test_sizes_of_a_folder_are_within_its_memory(
    digits: celosia.Program, tmp_path: Path, part: str, field: str, value: object
) -> None:
    path = digits.save(tmp_path) / "model.json"
    known = json.loads(path.read_text())
    (known[part] if part else known)[field] = value
    path.write_text(json.dumps(known))
    with pytest.raises(celosia.InputError, match="is not as celosia compile writes it"):
        celosia.open(tmp_path)


@pytest.mark.parametrize(
    ("part", "field"), [("output", "scale"), ("output", "zero_point"), ("", "follows")]
)
def test_a_manifest_that_was_changed_is_refused(
    digits: celosia.Program, tmp_path: Path, part: str, field: str
) -> None:
    path = digits.save(tmp_path) / "model.json"
    known = json.loads(path.read_text())
    (known[part] if part else known)[field] = 1
    path.write_text(json.dumps(known))
    with pytest.raises(celosia.InputError, match=r"writes it \(model.json was changed\)"):
        celosia.open(tmp_path)


@pytest.mark.parametrize("origin", [5, {"model": "digits"}, {"model": "digits", "tokens": "x"}])
def test_the_float_model_of_a_folder_is_named(
    digits: celosia.Program, tmp_path: Path, origin: object
) -> None:
    path = digits.save(tmp_path) / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"origin": origin}))
    with pytest.raises(celosia.InputError, match="names its float model in a way that cannot be"):
        celosia.open(tmp_path, floats=True)


@pytest.mark.parametrize("name", ["image.bin", "program.bin", "config.toml"])
def test_a_file_of_another_compilation_is_refused(
    digits: celosia.Program, tmp_path: Path, name: str
) -> None:
    """Two compilations of one model with other weights have files of equal sizes."""
    folder = digits.save(tmp_path / "digits")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + (b" " if name == "config.toml" else b"\x5a"))
    message = rf"\({name} was changed, or is from another compilation\); compile it again: celosia"
    with pytest.raises(ValueError, match=message):
        celosia.open(folder)
