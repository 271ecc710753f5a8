"""Files that somebody else made: no file outside their folder is read, and texts are only texts."""

import json
import os
import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest
from safetensors.numpy import save_file

from celosia.arch.errors import InputError
from celosia.arch.files import check_links
from celosia.arch.presets import PRESETS
from celosia.arch.support.cache import ROOT
from celosia.cli.output import plain, predictions_table, report
from celosia.generators.export.c_source import Samples, comment, identifier, model_files
from celosia.generators.export.compiled_folder import load_compiled_text
from celosia.generators.export.manifest import DECODER, FORMAT
from celosia.generators.frontend.hugging_face_folder import Folder
from celosia.generators.frontend.weights import load_model
from tests.test_cli_doors import LLAMA, check_refusal

MODEL = ROOT / "generators" / "models" / "digits-simplified"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(LLAMA))
    save_file({"x": np.zeros(1)}, tmp_path / "outside.safetensors")
    return path


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("../outside.safetensors", "is not in its folder; copy it into"),
        ("{tmp}/outside.safetensors", "is not in its folder; copy it into"),
        ("/dev/zero", "is not in its folder; copy it into"),
        ("x/../../outside.safetensors", "is not in its folder; copy it into"),
        ("a\0b", "must name files of its folder, not 'a\\x00b'"),
        ("a\ud800", "must name files of its folder, not 'a\\ud800'"),
        ("", "must name files of its folder, not ''"),
        (["x"], "must name files in 'weight_map', not ['x']"),
        ({"x": 1}, "must name files in 'weight_map', not {'x': 1}"),
        (5, "must name files in 'weight_map', not 5"),
    ],
)
def test_an_index_names_files_of_its_folder_alone(celosia, tmp_path, folder, name, part) -> None:
    name = name.format(tmp=tmp_path) if isinstance(name, str) else name
    index = {"weight_map": {"x": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    check_refusal(celosia("inspect", folder), part)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling"]
)
def test_links_out_of_a_folder_are_refused(celosia, tmp_path, folder, name) -> None:
    (tmp_path / "secret").write_text(json.dumps(LLAMA))
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "secret")
    check_refusal(celosia("inspect", folder), f"holds the link {name!r}, which leads out of it")


def test_links_within_a_folder_and_into_the_cache_of_a_hub_are_read(tmp_path: Path) -> None:
    cache = tmp_path / "models--x"
    home = cache / "snapshots" / "0123"
    for place in (home, cache / "blobs"):
        place.mkdir(parents=True)
    (cache / "blobs" / "abc").write_text(json.dumps(LLAMA))
    (home / "config.json").symlink_to("../../blobs/abc")
    (home / "other.json").symlink_to("config.json")
    check_links(home)
    assert Folder(home).kind == "llama"
    (home / "bad.json").symlink_to("../../../x")
    with pytest.raises(InputError, match=r"holds the link 'bad.json', which leads out of it"):
        check_links(home)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "other"])
def test_pipes_and_devices_in_a_folder_are_refused(celosia, folder, name) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    check_refusal(celosia("inspect", folder), f"holds {name!r}, which is a pipe")
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    check_refusal(celosia("inspect", folder), f"holds {name!r}, which is a device")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{pipe}.onnx"),
        ("run", "{pipe}.bin"),
        ("run", "digits", "--inputs", "{pipe}.npy"),
        ("run", "digits", "--config", "{pipe}.toml"),
        ("run", "/dev/zero"),
        ("evaluate", "digits", "--text", "/dev/zero"),
    ],
)
def test_pipes_and_devices_are_refused_wherever_a_file_is_read(celosia, tmp_path, words) -> None:
    for suffix in (".onnx", ".bin", ".npy", ".toml"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
    outcome = celosia(*(word.format(pipe=tmp_path / "pipe") for word in words))
    check_refusal(outcome, "; save its content to a file")


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a\0", ["x"]])
def test_a_compiled_folder_names_files_of_its_own_alone(tmp_path: Path, name) -> None:
    (tmp_path / "config.toml").write_text(PRESETS["story"].to_toml())
    described = {
        "format": FORMAT,
        "kind": DECODER,
        "memory_bytes": 1,
        "cache": {"capacity": 1, "sinks": 0, "recompute": False, "bits": 8, "block": 0},
        "source": {},
        "logits": {},
        "program": {"entries": {}, "words": 1},
        "configuration": {"name": "story"},
        "tensors": {},
        "model": "x",
        "vocabulary": 3,
        "places": 3,
        "rows": 1,
        "setup": [{"image": name, "image_bytes": 1, "program": "x", "words": 1, "tensors": []}],
    }
    (tmp_path / "program.bin").write_bytes(bytes(4))
    (tmp_path / "model.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match=r"names? .*(is not in its folder|of its folder, not)"):
        load_compiled_text(tmp_path)


NASTY = "*/ __attribute__((constructor)) void f(void){} /* \\ \n\x1b[31m \"'?" + "?/é"


def test_a_name_is_no_code_in_a_comment_or_an_identifier() -> None:
    text = comment(NASTY)
    assert text.isascii()
    assert text.isprintable()
    assert not any(part in text for part in ("*/", "/*", "\\", "?"))
    assert identifier("9*/é x") == "_9____x"
    assert identifier("") == "_"
    assert len(identifier("x" * 300)) == 64


@pytest.mark.parametrize("module", ["celosia", "celosia_text"])
def test_headers_of_models_have_names_in_comments_alone(module: str) -> None:
    config = SimpleNamespace(name=NASTY, control=PRESETS["tiny"].control)
    code = SimpleNamespace(name=NASTY, config=config, words=[0])
    files = model_files(code, [module], [], [], Samples("", "", []))
    first, *others = files[f"{identifier(NASTY)}_model.h"].splitlines()
    assert (first.count("*/"), first[-2:], first.count("/*")) == (1, "*/", 1)
    assert not any("constructor))" in line for line in others)


def test_names_that_are_not_printable_are_refused(celosia, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    described = (folder / "model.toml").read_text()
    for name in ("a\x1b[31m", "a\nb", "x" * 300):
        text = described.replace('"digits-simplified"', json.dumps(name))
        assert text != described
        (folder / "model.toml").write_text(text)
        check_refusal(
            celosia("inspect", folder), "name must be at most 255 printable characters, not '"
        )
    (tmp_path / "c.toml").write_text('name = "a\\nb"')
    outcome = celosia("generate", "--config", tmp_path / "c.toml", "--out", tmp_path / "o")
    check_refusal(outcome, "Field name must be at most 255 printable characters, not 'a\\nb'")


def test_names_with_quotes_are_read_again(tmp_path: Path) -> None:
    name = 'a"b\\c]'
    assert tomllib.loads(PRESETS["tiny"].replace(name=name).to_toml())["name"] == name
    model, _ = load_model("digits")
    assert tomllib.loads(model.replace(name=name).to_toml())["name"] == name


@pytest.mark.long
def test_a_name_that_ends_a_comment_is_exported_harmlessly(celosia, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    described = (folder / "model.toml").read_text()
    name = "*/ int evil = 1; /*"
    text = described.replace('"digits-simplified"', json.dumps(name))
    (folder / "model.toml").write_text(text)
    (tmp_path / "c.toml").write_text(f'preset = "tiny"\nname = "{name}"\n')
    words = (
        "--config",
        tmp_path / "c.toml",
        "--inputs",
        "random:1",
        "--add",
        "c",
        "--out",
        tmp_path / "out",
    )
    code, _, errors = celosia("compile", folder, *words, "--out", tmp_path / "out")
    assert (code, errors.count("Traceback")) == (0, 0), errors
    for path in (tmp_path / "out").glob("*_model.[ch]"):
        for line in path.read_text().splitlines():
            assert "evil" not in line or line.count("*/") == line.count("/*") <= 1
            assert "*/ int" not in line or '"' in line


NAMES = ("[/INST]", "[n02119789]", "\x1b[31mred", "[bold]x[/bold]", "a\rb")


def test_labels_are_printed_as_they_are(capsys) -> None:
    result = {"predictions": [0, 1, 2, 3, 4], "labels": [0, 1, 2, 3, 4], "names": [*NAMES]}
    predictions_table(result)
    output, _ = capsys.readouterr()
    for name in NAMES:
        assert plain(name) in output
    assert "\x1b" not in output
    assert "\r" not in output
    assert plain("\x1b\x9b\ud800\n\t é") == "\\x1b\\x9b\\ud800\n\t é"


def test_figures_and_titles_are_printed_as_they_are(capsys) -> None:
    with click.Context(click.Command("x")):
        report("[/INST] title", [{"[n1]": "[/b]"}], {})
        report("[/INST] title", [{"[n1]": "[/b]", "c": 1}] * 2, {})
    output, _ = capsys.readouterr()
    assert output.count("[/INST]") == 2
    assert output.count("[n1]") == 2
    assert output.count("[/b]") == 3


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (0, 1, 3), (0, 2), (-1, 0)])
def test_gaps_and_shifts_of_class_names_are_refused(folder, numbers) -> None:
    config = LLAMA | {"id2label": {str(number): f"n{number}" for number in numbers}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"'id2label' in .* must name the classes 0 to \d, but"):
        Folder(folder).labels(len(numbers))


def test_a_class_name_that_is_not_printable_is_refused(folder) -> None:
    config = LLAMA | {"id2label": {"0": "a", "1": "\x1b[2J"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"^Name of class 1 in .* must be at most 255 printable"):
        Folder(folder).labels(2)
