"""Refuses an earlier version's command line, and shows the same command in this version's form."""

import itertools
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
_PLACEHOLDER = re.compile(r"\{(\w*)\}")


def template_of(command: str, option: str) -> str | None:
    """Return a template that says how an earlier version's option of a command is written today.

    A template is words such as ``--quantize group={}``, in which ``{}`` stands for the option's
    value. If another command has the option today, the template begins with the command's name and
    "! ". If the option was removed, the result is "gone: " and the reason. If the option is
    unchanged, the result is None.
    """
    template = _template(command, option)
    words = (template or "").split()
    if not words or words[0] == option or not words[0].startswith("--"):
        return template
    gone = _template(command, words[0]) or ""
    if not is_gone(gone):
        return template
    if words[0] == "--quantize":
        key = keys_today(words[1]).partition("=")[0]
        return gone.replace("--quantize", f"--quantize {key}")
    return gone


def _template(command: str, option: str) -> str | None:
    for name in (command, TABLE["names"].get(command, ""), ANY):
        template = TABLE["options"].get(name, {}).get(option)
        if template is not None:
            return str(template)
    return None


def keys_today(text: str) -> str:
    """Rewrite an earlier version's value of ``--quantize`` for this version, and return it.

    The value ``text`` consists of pairs such as ``kv-bits=4``, a key and its setting. Keys that
    have other names in this version are renamed. Raises :class:`InputError` with the reason if a
    key was removed.
    """
    pairs = [part.partition("=") for part in re.split(r",(?=[^,=]*=)", text)]
    keys = {key: value for key, _, value in pairs}
    former: dict[str, str] = {}
    for spelled, template in TABLE["keys"].items():
        key, _, wanted = spelled.partition("=")
        value = keys.get(key)
        if value is None or value != (wanted or value):
            continue
        del keys[key]
        if is_gone(template):
            raise InputError(f"Key {key} of --quantize is {template}")
        name, _, shown = template.replace("{}", value).partition("=")
        former[name] = shown if value != "no" else ""
    today = ",".join(f"{key}={value}" for key, value in (former | keys).items() if value)
    return today if former else text


def placeholders(template: str) -> list[str]:
    """Return the names in braces in a template, in order; "" for empty braces.

    A template says how an option of an earlier version is written today. For example,
    ``--temperature {temperature}:{top_p}`` has the names ``temperature`` and ``top_p``, which stand
    for the values of earlier options.
    """
    return _PLACEHOLDER.findall(template)


def is_gone(template: str) -> bool:
    """Return whether an option that an earlier version of a command had was removed.

    ``template`` is the text that :func:`template_of` returns for the option.
    """
    return template.startswith("gone: ")


def to_current_version(tree: click.Group, words: Sequence[str]) -> list[str] | None:
    """Convert a command line of an earlier version to this version; return a list of its words.

    ``words`` are the words of the command line after ``celosia``. ``tree`` is the group of this
    version's commands. The result is None if the command line needs no change, or its command is
    unknown. Raises :class:`InputError` with the reason if the command line has an option that was
    removed.
    """
    name = next((n for n in (" ".join(words[:2]), *words[:1]) if n in TABLE["names"]), None)
    if name is None:
        name = next((n for n in (" ".join(words[:2]), *words[:1]) if command_of(tree, n)), None)
    if name is None:
        return None
    command = TABLE["names"].get(name, name)
    leaf = command_of(tree, command)
    assert leaf is not None, "the table names commands"
    flags = {o for p in leaf.params if getattr(p, "is_flag", False) for o in p.opts} | {"--json"}
    kept: list[tuple[str, ...]] = []
    merged: dict[str, dict[str, str]] = {}
    rest = list(words[len(name.split()) :])
    while rest:
        word = rest.pop(0)
        option, _, value = word.partition("=")
        template = template_of(name, option) if option.startswith("--") else None
        if template is None:
            value = [] if not word.startswith("--") or "=" in word or word in flags else rest[:1]
            kept.append((word, *value))
            del rest[: len(value)]
            continue
        if is_gone(template):
            raise InputError(f"Option {option} is {template}")
        if placeholders(template) and "=" not in word:
            value = rest.pop(0) if rest else option.strip("-").upper()
        before, _, after = template.rpartition("! ")
        command = before or command
        if placeholders(after) in ([], [""]):
            kept.append(tuple(part.replace("{}", value) for part in after.split()))
        else:
            merged.setdefault(after, {})[_placeholder(option)] = value
    for template, values in merged.items():
        for pair in [pair for pair in kept if _placeholder(pair[0]) in placeholders(template)]:
            values[_placeholder(pair[0])] = pair[1]
            kept.remove(pair)
        kept.append(tuple(_filled(name, template, values).split()))
    added = TABLE["added"].get(name, "").split()
    line = [*command.split(), *added, *(word for part in _with_keys(kept) for word in part)]
    return None if line == list(words) else line


def _with_keys(parts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return a line's parts, with one ``--quantize`` of today's keys if there are former ones."""
    own = [part for part in parts if part[0].partition("=")[0] == "--quantize"]
    text = ",".join("=".join(part).partition("=")[2] for part in own)
    today = keys_today(text)
    if today == text:
        return parts
    others = [part for part in parts if part not in own]
    return [*others, *([("--quantize", today)] if today else [])]


def _placeholder(option: str) -> str:
    return option.strip("-").replace("-", "_")


def _filled(command: str, template: str, values: Mapping[str, str]) -> str:
    filled = _PLACEHOLDER.sub(lambda found: _value(command, found[1], values), template)
    return filled.replace("/0/0", "").replace(" ,", " ")


def _value(command: str, name: str, values: Mapping[str, str]) -> str:
    default = TABLE["defaults"].get(command, {}).get(name, TABLE["defaults"][ANY].get(name))
    return str(values.get(name, default if default is not None else name.upper()))


def refuse_former(tree: click.Group, words: Sequence[str]) -> None:
    """Raise :class:`InputError` if a command line is written for an earlier version.

    ``words`` are the words of the command line after ``celosia``. The message has the equivalent
    command line for this version.
    """
    before = list(itertools.takewhile("--json".__eq__, words))
    line = to_current_version(tree, [*words[len(before) :], *before])
    if line is not None:
        raise InputError(f"This is written in another way today: celosia {shlex.join(line)}")
