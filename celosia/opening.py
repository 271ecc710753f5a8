"""Open saved programs."""

from pathlib import Path

from celosia.generators.export.compiled_folder import load_compiled
from celosia.models import Model
from celosia.programs import Program


def open(folder: str | Path, *, model: Model | None = None) -> Program:
    """Open a program from a folder written by ``Program.save`` or ``celosia compile``.

    Without its float ``model`` a language model runs as before. An encoder then takes rows of the
    machine's input and returns rows of its output, without the host's steps. Raises
    :class:`InputError` if a file is missing, damaged or of another version.
    """
    code, tokenizer, known = load_compiled(Path(folder))
    names = known.get("labels", ())
    return Program(code, known["made"], model, own_tokenizer=tokenizer, names=names)
