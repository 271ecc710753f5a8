"""Find the configuration of an accelerator by a preset, board or file name; change its fields."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from celosia.arch.config import Config
from celosia.arch.errors import InputError, close
from celosia.arch.presets import PRESETS, load


def config(source: str | Path = "small", **fields: Any) -> Config:
    """Return the configuration of a preset, board or TOML file, changed by keyword arguments.

    ``fields`` has the new values of fields, by the fields' short names: ``rows=12`` changes
    ``array.rows``. Raises :class:`InputError` if the name, file or field is unknown or a value is
    invalid.
    """
    return machine(str(source)).replace(**fields)


def machine(source: str, changes: Sequence[str] = ()) -> Config:
    """Return the configuration of a preset, board or TOML file, changed by texts ``FIELD=VALUE``.

    ``changes`` lists these texts. A board's name selects the board's default machine, with block
    RAM as its external memory. Raises :class:`InputError` as :func:`config`.
    """
    if source not in PRESETS and not Path(source).suffix:
        try:
            # Boards need extras that other machines do not.
            boards = importlib.import_module("celosia.fpga.boards")
        except ModuleNotFoundError:
            return load(source, list(changes))
        if source in boards.BOARDS:
            own: Config = boards.get_board(source).config
            return own.override(list(changes))
        question = close(source, boards.BOARDS)
        if question and not close(source, PRESETS):
            raise InputError(
                f"Unknown configuration {source!r};{question} use a TOML file, or the name of a "
                "preset or a board"
            )
    return load(source, list(changes))
