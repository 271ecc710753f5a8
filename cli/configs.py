"""celosia configs: list the presets, or print the configuration of a board's machine."""

import json
from dataclasses import asdict

import click

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.cli.board_options import resolve_board
from celosia.cli.output import as_json, report
from celosia.cli.tree import Command

_SHOWN = ("rows", "cols", "lanes", "scratchpad_bytes", "acc_depth", "mem_width")


@click.command(cls=Command, example="--board ulx3s_85f")
@click.option("--board", "name", metavar="BOARD", help="Write this board's own machine as TOML.")
@click.option("--memory", metavar="sdram", help="External memory of that board, as celosia build.")
def configs(name: str | None, memory: str | None) -> None:
    """List the presets, or with --board print the configuration of a board's machine.

    The option --config of other commands accepts the name of a preset, or a file with the text that
    --board prints.
    """
    if name is not None:
        config = resolve_board(name, None, (), "uart", memory)[1]
        click.echo(json.dumps(asdict(config)) if as_json() else config.to_toml(), nl=as_json())
        return
    if memory is not None:
        raise InputError("Option --memory needs --board")
    rows = [
        {"name": name, **{field: preset.read(field) for field in _SHOWN}}
        for name, preset in PRESETS.items()
    ]
    report("Configurations", rows, {name: asdict(p) for name, p in PRESETS.items()})
