"""Command lines of earlier versions: the command refuses them with the line to write today."""

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from celosia.arch.errors import InputError
from celosia.cli.tree import command_of

TABLE: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("former.toml").read_text(encoding="utf-8")
)
"""Today's spelling of commands and options that had another one."""
ANY = "*"
_HOLE = re.compile(r"\{(\w*)\}")


def spelling(command: str, option: str) -> str | None:
    """Return the template for today's spelling of an option of a command.

    Return None if the spelling is unchanged.
    """
    for name in (command, TABLE["names"].get(command, ""), ANY):
        template = TABLE["options"].get(name, {}).get(option)
        if template is not None:
            return str(template)
    return None


def holes(template: str) -> list[str]:
    """Return the names in braces in a template of a command line.

    An empty name stands for the option's value.
    """
    return _HOLE.findall(template)


def is_gone(template: str) -> bool:
    """Return whether an option was removed: its template is then the reason."""
    return template.startswith("gone: ")


def today(tree: click.Group, words: Sequence[str]) -> list[str] | None:
    """Return an earlier version's command line in today's words; None if nothing has changed.

    Raises :class:`InputError` with the reason if an option is gone.
    """
    name = next((n for n in (" ".join(words[:2]), *words[:1]) if n in TABLE["names"]), None)
    if name is None:
        name = next((n for n in (" ".join(words[:2]), *words[:1]) if command_of(tree, n)), None)
    if name is None:
        return None
    command = TABLE["names"].get(name, name)
    leaf = command_of(tree, command)
    assert leaf is not None, "the table names commands"
    flags = {o for p in leaf.params if getattr(p, "is_flag", False) for o in p.opts}
    kept: list[tuple[str, ...]] = []
    merged: dict[str, dict[str, str]] = {}
    rest = list(words[len(name.split()) :])
    while rest:
        word = rest.pop(0)
        option, _, value = word.partition("=")
        template = spelling(name, option) if option.startswith("--") else None
        if template is None:
            value = [] if not word.startswith("--") or "=" in word or word in flags else rest[:1]
            kept.append((word, *value))
            del rest[: len(value)]
            continue
        if is_gone(template):
            raise InputError(f"Option {option} is {template}")
        if holes(template) and "=" not in word:
            value = rest.pop(0) if rest else option.strip("-").upper()
        before, _, after = template.rpartition("! ")
        command = before or command
        if holes(after) in ([], [""]):
            kept.append(tuple(part.replace("{}", value) for part in after.split()))
        else:
            merged.setdefault(after, {})[_hole(option)] = value
    for template, values in merged.items():
        for pair in [pair for pair in kept if _hole(pair[0]) in holes(template)]:
            values[_hole(pair[0])] = pair[1]
            kept.remove(pair)
        kept.append(tuple(_filled(name, template, values).split()))
    added = TABLE["added"].get(name, "").split()
    line = [*command.split(), *added, *(word for part in kept for word in part)]
    return None if line == list(words) else line


def _hole(option: str) -> str:
    return option.strip("-").replace("-", "_")


def _filled(command: str, template: str, values: Mapping[str, str]) -> str:
    filled = _HOLE.sub(lambda hole: _value(command, hole[1], values), template)
    return filled.replace("/0/0", "").replace(" ,", " ")


def _value(command: str, hole: str, values: Mapping[str, str]) -> str:
    default = TABLE["defaults"].get(command, {}).get(hole, TABLE["defaults"][ANY].get(hole))
    return str(values.get(hole, default if default is not None else hole.upper()))


def refuse_former(tree: click.Group, words: Sequence[str]) -> None:
    """Raise :class:`InputError` with today's line if a command line has a former name."""
    line = today(tree, words)
    if line is not None:
        raise InputError(f"This is written in another way today: celosia {shlex.join(line)}")
