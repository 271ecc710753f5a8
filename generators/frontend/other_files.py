"""Error messages for model files in known but unsupported formats: how to convert the model."""

import zipfile
from pathlib import Path

from celosia.arch.errors import InputError
from celosia.arch.files import reading
from celosia.arch.tables import read_table
from celosia.generators.frontend.hugging_face_folder import TABLES
from celosia.generators.frontend.weights import DESCRIPTION_FILE

_OTHERS = {
    suffix: entry["why"]
    for entry in read_table(TABLES / "refused_files.toml").values()
    for suffix in entry["suffixes"]
}
_MAGIC = {b"GGUF": ".gguf", b"PK\x03\x04": ".zip", b"\x89HDF": ".h5", b"\x80\x02": ".pkl"}
MANIFEST = "model.json"
"""Name of the file that describes a compiled program, in the folder of the program."""
KNOWN = "a folder, an ONNX file (.onnx), a llama2.c checkpoint (.bin), or a name of the package's"


def _archive(path: Path) -> str:
    """Return the suffix of an archive's kind of files, by the names in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {Path(name).name for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError, ValueError):
        return path.suffix.lower()
    if "data.pkl" in names:
        return ".pt"
    return ".keras" if "model.weights.h5" in names else ".zip"


def refuse_other(path: Path) -> None:
    """Raise the error for a model file or folder that no loader accepts.

    :class:`InputError` is raised for any file that exists, a missing file with the suffix of a
    known format, and a folder with a compiled program but no float model. For other paths, nothing
    is raised.
    """
    kind = path.suffix.lower()
    if (path / MANIFEST).is_file() and not (path / DESCRIPTION_FILE).is_file():
        raise InputError(
            f"Folder {path} holds a compiled program and no float model; run it with: celosia run "
            f"{path}, or give the model that it was compiled from"
        )
    if path.is_dir():
        return
    if path.is_file():
        with reading(path), path.open("rb") as file:
            first = file.read(8)
        suffixes = [suffix for magic, suffix in _MAGIC.items() if first.startswith(magic)]
        kind = ".tflite" if first[4:] == b"TFL3" else suffixes[0] if suffixes else kind
        kind = _archive(path) if kind == ".zip" else kind
    elif kind not in _OTHERS:
        return
    if kind in _OTHERS:
        raise InputError(f"File {path} is not read: {_OTHERS[kind]}")
    raise InputError(f"File {path} is not a model that is known; use {KNOWN}")
