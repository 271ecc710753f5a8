"""One source, one label: nothing of inputs and labels is dropped in silence or out of step."""

import io
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from celosia.arch.errors import InputError
from celosia.arch.files import read_lines, read_toml
from celosia.cli.input_options import random_count
from celosia.generators.frontend.media import read_sound
from celosia.generators.frontend.sample_files import (
    input_files,
    read_answers,
    read_array,
    read_labels,
    read_samples,
)
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.tokenizer import read_sentences
from celosia.tb.models.run_inputs import Files, read_inputs
from tests.test_cli_doors import check_refusal

NAMED = tuple(f"n{number}" for number in range(10))


@pytest.fixture(scope="module")
def source():
    return load_source("digits-simplified")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def inputs_of(source, count: int) -> np.ndarray:
    model = source.description
    return np.zeros((count, model.tokens, model.features), np.float32)


def test_lines_end_where_lines_end(tmp_path: Path) -> None:
    odd = "a\x0bb\x0cc\x85d\u2028e\u2029f\x1cg"
    path = write(tmp_path / "x", f"\ufeff{odd}\r\nsecond\rthird\n")
    assert read_lines(path, "lines") == [odd, "second", "third"]
    assert read_sentences(path) == [odd, "second", "third"]
    assert read_answers(write(path, "\ufeffa\x0cb\tc\u2028d\n")) == [("a\x0cb", "c\u2028d")]
    assert read_toml(write(path, "\ufeffdim = 3\n"), "description") == {"dim": 3}


def test_blank_lines_are_refused_where_labels_could_belong_to_them(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "a\n \nb\n\n\n")
    with pytest.raises(InputError, match=r"^Line 2 of .*x is blank; remove it, and its entries"):
        read_sentences(path)
    assert read_sentences(path, blank=True) == ["a", "b"]
    assert read_sentences(write(path, "a\nb\n\n")) == ["a", "b"]


def test_a_name_of_two_classes_is_refused(tmp_path: Path, source) -> None:
    cranes = replace(source, labels=("crane", *NAMED[1:9], "crane"))
    path = write(tmp_path / "labels", "n1\ncrane\n")
    with pytest.raises(InputError) as caught:
        read_labels(path, cranes)
    assert str(caught.value) == (
        f"Label 'crane' in {path} is the name of the classes 0 and 9; give the number of the right "
        "one"
    )
    assert read_labels(write(path, "n1\n0\n9\n"), cranes).tolist() == [1, 0, 9]


@pytest.mark.parametrize("labels", [2, 4])
@pytest.mark.parametrize("random", [False, True])
def test_a_count_of_labels_that_differs_is_refused(tmp_path, source, labels, random) -> None:
    np.save(tmp_path / "x.npy", inputs_of(source, 3))
    path = write(tmp_path / "labels", "1\n" * labels)
    files = Files(inputs=tmp_path / "x.npy", labels=path)
    if random:
        files = Files(random=3, labels=path)
    with pytest.raises(InputError, match=f"must have a label for each of 3 inputs, not {labels}"):
        read_inputs("x", source, files, 1)
    write(path, "1\n2\n3\n")
    chosen, _, read = read_inputs("x", source, files, 2)
    assert (len(chosen), read.tolist()) == (2, [1, 2, 3])


@pytest.mark.parametrize(
    "label", ["99", "10", "-1", "1" * 6000, "18446744073709551615", "n1", "\u0661", "1.0", "0x1"]
)
def test_labels_that_are_no_class_are_refused(tmp_path: Path, source, label: str) -> None:
    path = write(tmp_path / "labels", f"1\n{label}\n")
    with pytest.raises(
        InputError, match=r"in .*labels must be a class's number, 0 to 9, as the model names none"
    ) as refusal:
        read_labels(path, source)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("label", [-1, 10, 1 << 40, (1 << 64) - 1])
def test_labels_of_an_array_that_are_no_class_are_refused(tmp_path, source, label) -> None:
    path = tmp_path / "labels.npy"
    np.save(path, np.array([1, label], np.int64 if label < 1 << 63 else np.uint64))
    with pytest.raises(InputError, match=rf"^Labels .* must be from 0 to 9, not {label}$"):
        read_labels(path, source)


def test_labels_by_the_names_of_files(tmp_path: Path, source) -> None:
    named = replace(source, labels=NAMED)
    files = [tmp_path / name for name in ("img1.png", "img10.png", "img2.png")]
    path = write(tmp_path / "labels", "img2.png\tn2\nimg10.png\t0\nimg1.png\tn1\n")
    assert read_labels(path, named, files).tolist() == [1, 0, 2]
    with pytest.raises(InputError, match=r"^File 'img2.png' has no label in"):
        read_labels(write(path, "img1.png\t1\nimg10.png\t0\n"), named, files)
    with pytest.raises(InputError, match=r"^File 'x.png' is none of the inputs, but is in"):
        read_labels(write(path, "x.png\t1\nimg1.png\t1\nimg10.png\t0\nimg2.png\t3\n"), named, files)
    with pytest.raises(InputError, match=r"have two lines for 'img1.png'$"):
        read_labels(write(path, "img1.png\t1\nimg1.png\t0\n"), named, files)
    with pytest.raises(InputError, match="must have a file's name, a tab and a class in each line"):
        read_labels(write(path, "img1.png\t1\n0\n"), named, files)


def image(path: Path) -> Path:
    Image.new("L", (4, 4)).save(path)
    return path


def test_a_folder_of_inputs_holds_inputs_alone(tmp_path: Path) -> None:
    first, second = image(tmp_path / "b.png"), image(tmp_path / "a.PNG")
    write(tmp_path / ".hidden", "x")
    assert input_files(tmp_path) == [second, first]
    for name in ("notes.txt", "labels.csv", "c.wav", "folder"):
        other = tmp_path / name
        other.mkdir() if name == "folder" else write(other, "x")
        with pytest.raises(InputError, match=f"holds {name!r}, which is not an image as the oth"):
            input_files(tmp_path)
        other.rmdir() if name == "folder" else other.unlink()


def test_random_inputs_fit_the_memory() -> None:
    assert random_count(Path("random:999999")) == (None, 999999)
    with pytest.raises(InputError, match="must have 1 to 999999 inputs, not '1000000'"):
        random_count(Path("random:1000000"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_inputs_that_are_not_finite_are_refused(celosia, tmp_path, source, value) -> None:
    values = inputs_of(source, 3)
    np.save(tmp_path / "calibration.npy", values)
    values[1, 2, 3] = value
    np.save(tmp_path / "x.npy", values)
    words = ("--inputs", tmp_path / "x.npy", "--calibration", tmp_path / "calibration.npy")
    outcome = celosia("run", "digits-simplified", "--sim", "golden", *words)
    check_refusal(outcome, "must be finite numbers, but input 1 is not")


def header(text: bytes) -> bytes:
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"PK\x03\x04" + bytes(60), "does not begin as one; save it with numpy.save"),
        (b"", "does not begin as one"),
        (b"\x93NUMPY", "are not a NumPy array"),
        (b"\x93NUMPY\x09\x00" + bytes(60), "are not a NumPy array"),
        (header(b"(" * 5000), "are not a NumPy array"),
        (header(b"(" * 200), "are not a NumPy array"),
        (header(b"{}"), "are not a NumPy array"),
        (header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4)}"), "64 bytes, and 0 f"),
        (header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 60,)}"), "not a NumPy"),
        (header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), "not a NumPy array"),
        (header(b"{'descr': '|O', 'fortran_order': False, 'shape': (0,)}"), "not a NumPy array"),
        (header(b"{'descr': '<f4', 'fortran_order': False, 'shape': %d}" % 3), "not a NumPy array"),
        (
            header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 4096)}"),
            "18014398509481984 bytes, and 0 follow",
        ),
        (
            header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}") + bytes(9),
            "states float32 [1], 4 bytes, and 9 follow; save it with numpy.save, alone",
        ),
        (
            header(b"{'descr': '|S4', 'fortran_order': False, 'shape': (1,)}") + b"abcd",
            "of numbers",
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_arrays_are_checked_before_memory_is_taken(tmp_path: Path, content, part) -> None:
    with pytest.raises(InputError) as refusal:
        read_array(write(tmp_path / "x.npy", content), "inputs")
    assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_arrays_of_every_version_and_order_are_read(tmp_path: Path) -> None:
    values = np.asfortranarray(np.arange(12, dtype=">f4").reshape(3, 4))
    for version in ((1, 0), (2, 0), (3, 0)):
        file = io.BytesIO()
        np.lib.format.write_array(file, values, version)
        array = read_array(write(tmp_path / "x.npy", file.getvalue()), "inputs")
        assert np.array_equal(array, values)


def test_a_sound_that_is_cut_within_a_sample_is_refused(tmp_path, source) -> None:
    (tmp_path / "sounds").mkdir()
    (tmp_path / "preprocessor_config.json").write_text('{"sampling_rate": 16000}')
    path = tmp_path / "sounds" / "x.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(100))
    path.write_bytes(path.read_bytes()[:-1])
    sounds = replace(source, path=tmp_path, shape=(50,))
    with pytest.raises(InputError, match="ends before its header says; it was cut"):
        read_samples(tmp_path / "sounds", sounds)


def test_a_sound_of_a_code_without_random_access_is_refused(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
    soundfile.write(tmp_path / "x.wav", np.zeros(3000), 8000, subtype="GSM610")
    with pytest.raises(InputError, match=r"^Cannot read sound .*/x\.wav: frames must be specified"):
        read_sound(tmp_path / "x.wav", 8000)
