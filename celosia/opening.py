"""Open programs that were saved in a folder."""

import os
from pathlib import Path
from typing import Any

from celosia.arch.arguments import checked
from celosia.arch.errors import InputError
from celosia.generators.export.compiled_folder import is_compiled, load_compiled
from celosia.models import Model, is_named, load
from celosia.programs import Program


@checked()
def open(folder: str | Path, *, model: Model | None = None, floats: bool = False) -> Program:
    """Return the program in a folder that ``Program.save`` or ``celosia compile`` wrote.

    ``model`` is the program's float model. If ``model`` is None and ``floats`` is true, the float
    model of an encoder is loaded from the path that was used for the compilation. A language
    model's program needs no float model. An encoder's program without a float model omits the
    host's pre- and postprocessing: its inputs and outputs are the matrices that the machine reads
    and writes.

    Raises :class:`InputError` in each of these cases:

    - A file is missing or damaged.
    - The program was saved in the file format of another version of Celosia.
    - The program was compiled from another float model.
    """
    place = Path(folder)
    code, tokenizer, known = load_compiled(place)
    if floats and model is None and tokenizer is None:
        model = _origin(place, known.get("origin"))
    if model is not None and isinstance(known.get("origin"), dict):
        _check_same(place, code.name, model, known["origin"])
    names = known.get("labels", ())
    return Program(code, known["made"], model, own_tokenizer=tokenizer, names=names)


def open_compiled(folder: str | Path) -> Program:
    """Return the program that ``celosia compile`` wrote to a folder, with its float model.

    Raises :class:`InputError` for the same reasons as :func:`open`. Also raises :class:`InputError`
    if the folder was not written by ``celosia compile``; the message then shows the command line
    that compiles the model.
    """
    if not is_compiled(str(folder)):
        raise InputError(
            f"{folder} is not a folder of celosia compile; make one with: celosia compile "
            f"{folder} --out build/{Path(folder).stem}"
        )
    return open(folder, floats=True)


def _check_same(folder: Path, name: str, model: Model, origin: dict[str, Any]) -> None:
    """Raise :class:`InputError` unless a folder was compiled from ``model``.

    ``name`` is the name of the folder's model, and ``origin`` the entry of its manifest.
    Manifests of earlier versions have no digest, and fit every model.
    """
    digest = model.digest
    if origin.get("digest", digest) != digest:
        raise InputError(
            f"Folder {folder} was compiled from model {name}, and model "
            f"{model.name} has other weights or settings; compile it again: celosia compile "
            f"{model.name} --out {folder}"
        )


def _origin(folder: Path, known: Any) -> Model:
    """Return the float model that a folder's manifest names."""
    if not known:
        raise InputError(
            f"Folder {folder} does not say where its float model is; compile it again with: "
            f"celosia compile MODEL --out {folder}"
        )
    try:
        name, tokens = str(known["model"]), int(known["tokens"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"Folder {folder} names its float model in a way that cannot be read "
            f"({type(error).__name__}: {error}); compile it again: celosia compile MODEL --out "
            f"{folder}"
        ) from error
    if not is_named(name):
        name = os.path.normpath(folder / name)
        if not os.path.exists(name):
            raise InputError(
                f"Folder {folder} was compiled from {name}, which is not there; put the model "
                "back, or give rows of the machine's input to celosia.open(folder).run"
            )
    return load(name, tokens=tokens)
