"""Error messages for model files in known but unsupported formats: how to convert the model."""

import zipfile
from pathlib import Path

from celosia.arch.errors import InputError
from celosia.arch.files import reading
from celosia.arch.tables import read_table
from celosia.generators.frontend.weights import DESCRIPTION_FILE

_OTHERS = {
    suffix: entry["why"]
    for entry in read_table(Path(__file__).parent / "families" / "refused_files.toml").values()
    for suffix in entry["suffixes"]
}
_MAGIC = {b"GGUF": ".gguf", b"PK\x03\x04": ".zip", b"\x89HDF": ".h5", b"\x80\x02": ".pkl"}
MANIFEST = "model.json"
"""Name of the file that describes a compiled program, in the folder of the program."""
ADAPTER = "adapter_config.json"
"""Name of the file that describes an adapter: numbers that are added to another model's weights."""
_MERGE = (
    "merge it with PEFT, which writes a whole folder: AutoPeftModelForCausalLM (or the class of "
    "the model's task).from_pretrained(FOLDER).merge_and_unload().save_pretrained(OTHER)"
)
_INSIDE = (".", "onnx")
"""Subfolders in which a model's file may be, such as that of Hugging Face's exporter."""
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


def refuse_adapter(folder: Path) -> None:
    """Raise :class:`InputError` if a folder contains an adapter (changes to a model's weights)."""
    if not (folder / ADAPTER).is_file():
        return
    whole = "; or take that file out of the folder, to run the model without it"
    raise InputError(
        f"Folder {folder} holds an adapter, as its {ADAPTER} says; {_MERGE}"
        f"{whole if (folder / 'config.json').is_file() else ''}"
    )


def refuse_folder(folder: Path, missing: str) -> None:
    """Raise :class:`InputError` if a folder contains an adapter, or a model in another file.

    An adapter is changes to the weights of another model. ``missing`` is the name of the file that
    the folder should contain.
    """
    refuse_adapter(folder)
    places = [folder / name for name in _INSIDE if (folder / name).is_dir()]
    files = sorted(path for place in places for path in place.iterdir() if path.is_file())
    # What can be read comes first.
    for file in sorted(files, key=lambda file: file.suffix not in (".onnx", ".safetensors")):
        suffix, name = file.suffix, file.relative_to(folder)
        subject = f"Folder {folder} has no {missing}"
        if suffix == ".onnx":
            raise InputError(f"{subject}; give its file {file}")
        if suffix == ".safetensors" and missing.endswith(suffix):
            raise InputError(
                f"{subject}; if its file {name} has all weights of the model, give it that name"
            )
        if suffix in _OTHERS and suffix != ".safetensors":
            raise InputError(f"{subject}, and its file {name} is not read: {_OTHERS[suffix]}")


def refuse_other(path: Path) -> None:
    """Raise :class:`InputError` for a model file or folder that no loader accepts.

    The error is raised in three cases:

    - The path is a file.
    - The path does not exist, but ends in the suffix of an unsupported model format.
    - The path is a folder with a compiled program, but no float model.
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
