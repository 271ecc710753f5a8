"""Find an accelerator's configuration by the name of a preset, board or file; change its fields."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from celosia.arch.arguments import checked
from celosia.arch.config import Config
from celosia.arch.errors import InputError, close
from celosia.arch.presets import PRESETS, load


@checked()
def config(source: str | Path = "small", **fields: Any) -> Config:
    """Return the configuration of a preset, a board or a TOML file, with changed fields.

    ``fields`` has the new values by the fields' short names: for example, ``rows=12`` sets the
    field ``array.rows`` to 12. Raises :class:`InputError` if no preset, board or file is found, a
    field is unknown, or a value is invalid.
    """
    return machine(str(source)).replace(**fields)


def machine(source: str, changes: Sequence[str] = ()) -> Config:
    """Return the configuration of a preset, a board or a TOML file, with changed fields.

    ``source`` is the name of a preset or board, or the path of a TOML file. A board's configuration
    is for external memory in block RAM, even if the board has a memory chip. ``changes`` is a list
    of texts ``FIELD=VALUE``, such as ``rows=12``. Raises :class:`InputError` if no preset, board or
    file is found, or a change is invalid.
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
