"""celosia configs: the named configurations."""

from dataclasses import asdict

import click

from arch.presets import PRESETS
from cli.options import json_option
from cli.output import report

_SHOWN = ("rows", "cols", "lanes", "scratchpad_bytes", "acc_depth", "mem_width")


@click.command()
@json_option
def configs(as_json: bool) -> None:
    """List the named configurations."""
    rows = [
        {"name": name, **{field: getattr(preset, field) for field in _SHOWN}}
        for name, preset in PRESETS.items()
    ]
    report("Configurations", rows, as_json, {name: asdict(p) for name, p in PRESETS.items()})
