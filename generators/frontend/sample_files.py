"""Inputs and labels from files: arrays, texts, folders of images and folders of sounds."""

import math
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.files import reading, within
from celosia.generators.frontend.media import (
    IMAGES,
    SOUNDS,
    image_reader,
    sound_length,
    sound_reader,
)
from celosia.generators.frontend.named_inputs import Values
from celosia.generators.frontend.source import Source
from celosia.generators.frontend.tokenizer import read_sentences


def read_samples(
    path: Path, source: Source, *, calibration: bool = False
) -> list[NDArray[np.generic]]:
    """Return a list of a model's inputs from a file or folder, prepared by :meth:`Source.prepare`.

    - ``.npy``: an array [count, *shape of an input].
    - ``.npz``: such an array for each input by name.
    - A folder: images or sounds, in the order of their names.
    - Any other file: one text per line. Blank lines are skipped if ``calibration`` is true.

    Raises :class:`InputError` if the file cannot be read or does not fit the model.
    """
    if path.is_dir():
        return [_prepared(source, sample, file) for file, sample in _folder(path, source)]
    if path.suffix == ".npz":
        return [_prepared(source, sample, path) for sample in _named(path)]
    if path.suffix != ".npy":
        if source.tokenizer is None:
            raise InputError(
                f"Model {source.description.name} does not take texts; give its inputs as .npy, "
                f"not {path}"
            )
        texts = read_sentences(path, blank=calibration)
        return [source.prepare(source.encode(text)) for text in texts]
    values = read_array(path, "inputs")
    with within(path):
        source.named.split_sample(source.description.name, values[0] if values.ndim else values)
        source.check(values)
    _check_finite(path, values)
    return [_prepared(source, sample, path) for sample in values]


def _named(path: Path) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Yield each sample of a ``.npz`` file, an array for each input by name."""
    arrays = read_arrays(path, "inputs")
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len({*counts.values()}) != 1 or 0 in counts.values():
        listed = ", ".join(f"{count} of {name}" for name, count in counts.items()) or "none"
        raise InputError(f"Inputs {path} must have as many samples of each input, not {listed}")
    for array in arrays.values():
        _check_finite(path, array)
    for number in range(next(iter(counts.values()))):
        yield {name: array[number] for name, array in arrays.items()}


def _check_finite(path: Path, values: NDArray[np.generic]) -> None:
    wrong = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if wrong.size:
        raise InputError(f"Inputs {path} must be finite numbers, but input {wrong[0]} is not")


def _prepared(source: Source, values: Values, path: Path) -> NDArray[np.generic]:
    with within(path):
        sample = source.prepare(values)
    if not np.isfinite(sample).all():
        raise InputError(f"Inputs {path} become numbers that are not finite")
    return sample


def count_cut(path: Path, source: Source, count: int | None) -> int:
    """Return how many of a folder's first ``count`` sounds are longer than the model's input.

    If ``count`` is None, all sounds of the folder are checked. The result is 0 for images, and for
    models whose input is not the samples of a sound.
    """
    files, most = input_files(path)[:count], int(np.prod(source.shape or ()))
    if files[0].suffix.lower() not in SOUNDS or most != max(source.shape or (), default=0):
        return 0
    return sum(sound_length(file) > most for file in files)


def read_answers(path: Path) -> list[tuple[str, str]]:
    """Return a list of pairs (source text, answer text) from a file.

    Each line has one pair, separated by a tab; blank lines are skipped. Raises :class:`InputError`
    if the file cannot be read, or a line does not have exactly one tab.
    """
    pairs = []
    for line in read_sentences(path, blank=True):
        source, *rest = line.split("\t")
        if len(rest) != 1:
            raise InputError(f"Answers {path} must have one tab in each line, not {line!r}")
        pairs.append((source, rest[0].strip()))
    return pairs


_NPY_MAGIC = b"\x93NUMPY"
_MOST_BYTES = 1 << 33
"""Bytes of the arrays in a ``.npz`` file, which may be packed into much less."""


def read_array(path: Path, content: str) -> NDArray[np.generic]:
    """Return the array of numbers in a ``.npy`` file.

    ``content`` names the numbers in error messages, for example "labels". Raises
    :class:`InputError` if the file cannot be read, has no array of numbers, or has not the size
    that its header states.
    """
    with reading(path, content), path.open("rb") as file:
        values = _read_array(file, path, content)
    if values.dtype.kind not in "iuf":
        raise InputError(f"{content.capitalize()} {path} must be an array of numbers")
    return values


def read_arrays(path: Path, content: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays in a ``.npz`` file: a dictionary from name to array.

    Raises :class:`InputError` in the cases of :func:`read_array`, and if two arrays have the same
    name or the arrays are too large together.
    """
    arrays = {}
    try:
        with reading(path, content), zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            size = sum(member.file_size for member in members.values())
            if len(members) != len(archive.infolist()) or size > _MOST_BYTES:
                raise InputError(
                    f"{content.capitalize()} {path} must be arrays of different names, of at most "
                    f"{_MOST_BYTES} bytes together"
                )
            for name, member in members.items():
                with archive.open(member) as file:
                    array = _read_array(file, path, content)
                if array.dtype.kind not in "iufb":
                    raise InputError(f"{content.capitalize()} {path} must be arrays of numbers")
                arrays[name.removesuffix(".npy")] = array
    # An encrypted member is a RuntimeError of zipfile, as is an unknown compression.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        line = str(error) or type(error).__name__
        raise _no_array(path, content, f"{line}; save them with numpy.savez") from error
    return arrays


def _read_array(file: IO[bytes], path: Path, content: str) -> NDArray[np.generic]:
    _check_array_header(file, path, content)  # before memory is allocated
    try:
        return np.asarray(np.load(file, allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise _no_array(path, content, str(error)) from error
    except MemoryError as error:
        raise InputError(
            f"{content.capitalize()} {path} do not fit this computer's memory"
        ) from error


def _check_array_header(file: IO[bytes], path: Path, content: str) -> None:
    """Raise :class:`InputError` if a file is no ``.npy`` file of the size that its header states.

    The file is left at its beginning.
    """
    formats = np.lib.format
    if file.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
        raise _no_array(path, content, "it does not begin as one; save it with numpy.save")
    file.seek(0)
    try:
        version = formats.read_magic(file)
        read = formats.read_array_header_1_0 if version < (2, 0) else formats.read_array_header_2_0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, _, dtype = read(file)
    except Exception as error:  # a header is parsed as Python, which fails in many ways
        line = str(error).partition("\n")[0] or "its header is broken"
        raise _no_array(path, content, line) from error
    begin = file.tell()
    stated, size = dtype.itemsize * math.prod(shape), file.seek(0, os.SEEK_END) - begin
    if dtype.hasobject or min(shape, default=0) < 0 or stated != size:
        raise _no_array(
            path,
            content,
            f"its header states {dtype} {list(shape)}, {stated} bytes, and {size} follow; save it "
            "with numpy.save, alone",
        )
    file.seek(0)


def _no_array(path: Path, content: str, why: str) -> InputError:
    return InputError(f"{content.capitalize()} {path} are not a NumPy array: {why}")


def read_labels(path: Path, source: Source, inputs: Sequence[Path] = ()) -> NDArray[np.int64]:
    """Return the correct class number of each input, [count], from a file.

    A ``.npy`` file has class numbers. Any other file has a line for each input: the number or the
    name of a class. If ``inputs`` has the paths of input files, each line may instead be a file
    name, a tab and a class. Raises :class:`InputError` if the file cannot be read, or does not fit
    the classes or the inputs.
    """
    classes = _classes(source)
    if path.suffix == ".npy":
        values = read_array(path, "labels")
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"Labels {path} must be integers [count], not {list(values.shape)}")
        numbers = [int(value) for value in values.tolist()]
        wrong = next((value for value in numbers if not 0 <= value < classes), None)
        if wrong is not None:
            raise InputError(f"Labels {path} must be from 0 to {classes - 1}, not {wrong}")
        return np.array(numbers, np.int64)
    number = _numbering(path, source, classes)
    lines = [line.strip() for line in read_sentences(path)]
    if not inputs or "\t" not in lines[0]:
        return np.array([number(line) for line in lines], np.int64)
    known = _by_file(path, lines)
    missing = sorted({file.name for file in inputs} ^ known.keys())
    if missing:
        of = "has no label in" if missing[0] not in known else "is none of the inputs, but is in"
        raise InputError(f"File {missing[0]!r} {of} {path}")
    return np.array([number(known[file.name]) for file in inputs], np.int64)


def read_classified(path: Path, source: Source) -> tuple[list[str], NDArray[np.int64]]:
    """Return the texts in a file, and their correct class numbers, [count].

    A line has a text (or two with a tab between), a tab, and a class number or name. Blank lines
    are skipped. Raises :class:`InputError` if the file cannot be read or a line has another form.
    """
    number, texts, classes = _numbering(path, source, _classes(source)), [], []
    for line in read_sentences(path, blank=True):
        text, tab, label = line.rpartition("\t")
        if not tab:
            raise InputError(f"Answers {path} must have a tab before the class, not {line!r}")
        texts.append(text)
        classes.append(number(label.strip()))
    return texts, np.array(classes, np.int64)


def _numbering(path: Path, source: Source, classes: int) -> Callable[[str], int]:
    """Return a function from the name or the number of a class in a file to its number."""
    names = {name: number for number, name in enumerate(source.labels)}

    def number(label: str) -> int:
        if source.labels.count(label) > 1:
            both = [str(index) for index, name in enumerate(source.labels) if name == label]
            raise InputError(
                f"Label {label!r} in {path} is the name of the classes {' and '.join(both)}; give "
                "the number of the right one"
            )
        number = names.get(label, int(label) if _is_short_number(label) else -1)
        if not 0 <= number < classes:
            known = f" or one of {_listed(names)}" if names else ""
            shown = repr(label if len(label) <= _SHOWN else f"{label[:_SHOWN]}...")
            raise InputError(
                f"Label {shown} in {path} must be a class's number, 0 to {classes - 1},{known}"
                f"{'' if names else ' as the model names none'}"
            )
        return number

    return number


_SHOWN = 40  # characters of a label, and names of classes


def _listed(names: Iterable[str]) -> str:
    listed = [*names]
    return ", ".join(listed[:_SHOWN]) + (", ..." if len(listed) > _SHOWN else "")


def _is_short_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _by_file(path: Path, lines: Sequence[str]) -> dict[str, str]:
    """Return the label of each file's name, from lines with a tab between both."""
    labels: dict[str, str] = {}
    for line in lines:
        name, *rest = line.split("\t")
        if len(rest) != 1:
            raise InputError(
                f"Labels {path} must have a file's name, a tab and a class in each line, "
                f"not {line!r}"
            )
        if name in labels:
            raise InputError(f"Labels {path} have two lines for {name!r}")
        labels[name] = rest[0]
    return labels


def _classes(source: Source) -> int:
    """Return the columns of the whole model's output, a row of scores for classes.

    Raises :class:`InputError` if the output is something else.
    """
    rng, others = np.random.default_rng(0), source.named.others
    sample = source.prepare(source.random(rng)) if others else np.zeros(0)
    with np.errstate(all="ignore"):
        shape = np.shape(source.finish(np.zeros(source.description.outputs), sample))
    if math.prod(shape) != shape[-1] or shape[-1] < 2:
        raise InputError("Labels are for models whose output is one row of scores for classes")
    return int(shape[-1])


def input_files(path: Path) -> list[Path]:
    """Return the paths of the images or sounds in a folder, sorted by name.

    Hidden files are ignored. Raises :class:`InputError` if the folder contains neither images nor
    sounds, contains both, or contains any other file or folder.
    """
    with reading(path, "folder"):
        files = sorted(
            path_inside for path_inside in path.iterdir() if not path_inside.name.startswith(".")
        )
    kinds = [
        [file for file in files if file.is_file() and file.suffix.lower() in endings]
        for endings in (IMAGES, SOUNDS)
    ]
    chosen = max(kinds, key=len)
    if not chosen:
        kind = f"neither images ({', '.join(IMAGES)}) nor sounds ({', '.join(SOUNDS)})"
        raise InputError(f"Folder {path} holds {kind}")
    other = next((file for file in files if file not in chosen), None)
    if other is not None:
        kind = "an image" if chosen is kinds[0] else "a sound"
        raise InputError(
            f"Folder {path} holds {other.name!r}, which is not {kind} as the others; take it out, "
            "so that each file is an input"
        )
    return chosen


def _folder(path: Path, source: Source) -> list[tuple[Path, NDArray[np.float64]]]:
    """Return the files of a folder, and the input that each becomes."""
    files = input_files(path)
    images = files[0].suffix.lower() in IMAGES
    read = (image_reader if images else sound_reader)(source)
    return [(file, read(file)) for file in files]
