"""Formats of weights and activations: the same options for every command that makes integers."""

import json
from pathlib import Path

import click
import pytest

from celosia.cli.bench import bench
from celosia.cli.format_options import FORMAT_OPTIONS, Formats
from celosia.cli.host import host
from celosia.cli.main import celosia as commands

NAMES = set(Formats.__dataclass_fields__)
TAKING = {
    **{name: (name,) for name in ("run", "text", "perplexity", "compile", "flash")},
    "bench decode": ("bench", "decode"),
    "bench pins": ("bench", "pins"),
    "host run": ("host", "run"),
}
"""Commands that make integers of a model as the options say."""
LIKE_FORMATS = ("weight", "activation", "sparse", "low", "bits", "loss", "function", "group")
TALES = ("tales", "--config", "small", "--context", "24", "--prompt", "one day", "--steps", "3")


def command(words: tuple[str, ...]) -> click.Command:
    """Return a command by its words."""
    found: click.Command | None = commands
    for word in words:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
    assert found is not None
    return found


def every(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Return all commands below a group by their words."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        assert one is not None
        words = (*path, name)
        found |= every(one, words) if isinstance(one, click.Group) else {" ".join(words): one}
    return found


def described(option: click.Parameter) -> dict[str, object]:
    """Return what makes an option what it is."""
    assert isinstance(option, click.Option)
    keys = ("opts", "default", "is_flag", "help", "metavar", "callback")
    kind = getattr(option.type, "choices", option.type.name)
    return {key: getattr(option, key) for key in keys} | {"type": kind}


@pytest.mark.parametrize("words", TAKING.values(), ids=TAKING)
def test_every_command_takes_the_same_formats(words: tuple[str, ...]) -> None:
    @click.command()
    def bare() -> None:
        """Hold the options and nothing else."""

    for option in FORMAT_OPTIONS:
        bare = option(bare)
    wanted = {one.name: described(one) for one in bare.params}
    assert set(wanted) == NAMES
    found = {one.name: described(one) for one in command(words).params if one.name in NAMES}
    assert found == wanted


def test_no_other_command_has_some_of_them() -> None:
    found = every(commands)
    assert found["bench decode"] is bench.get_command(click.Context(bench), "decode")
    assert found["host run"] is host.get_command(click.Context(host), "run")
    having = {name for name, one in found.items() if NAMES & {each.name for each in one.params}}
    assert having == set(TAKING)


@pytest.mark.parametrize(
    "formats",
    [
        ("--weights", "int4", "--group", "8", "--activations", "mixed"),
        ("--weights", "ternary", "--low-rank", "2"),
        ("--weights", "nested"),
    ],
)
def test_the_formats_have_one_meaning(celosia, tmp_path: Path, formats: tuple[str, ...]) -> None:
    """The bytes of weights that each command reports, and its own figures of what was asked."""
    file = tmp_path / "text.txt"
    file.write_text("one day a quiet fox saw a river")
    ways = {
        "text": ("text", *TALES, "--sim", "golden"),
        "perplexity": ("perplexity", "tales", "--text", file),
        "compile": ("compile", *TALES[:5], "--out", tmp_path / "out"),
    }
    found = {}
    for name, words in ways.items():
        code, output, errors = celosia(*words, *formats, "--json")
        assert code == 0, errors
        result = json.loads(output)
        found[name] = [result[key] for key in ("weights", "group", "activations", "low_rank")]
        found[name].append(result["weight_bytes"])
    assert found["text"] == found["perplexity"] == found["compile"]
    dim, ffn = ("--dim", "32"), ("--ffn", "64")
    layer = ("bench", "decode", "--config", "small", *dim, *ffn, "--positions", "8")
    code, output, errors = celosia(*layer, "--sim", "golden", *formats, "--json")
    assert code == 0, errors
    result = json.loads(output)
    assert result["mismatches"] == 0
    assert [result[key] for key in ("weights", "group", "activations", "low_rank")] == found[
        "text"
    ][:4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "decode"), "Option --weights auto needs a trained model, not a layer of random"),
        (
            ("run", "tales"),
            "Option --weights auto measures accuracy on the digits, which tales does",
        ),
    ],
)
def test_a_search_needs_what_has_a_loss(celosia, words: tuple[str, ...], message: str) -> None:
    code, _, errors = celosia(*words, "--weights", "auto", "--loss", "0.5")
    assert code == 2
    assert message in errors
    assert errors.count("\n") == 1


def test_sparse_weights_are_counted_in_their_code(celosia, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("one day a quiet fox saw a river")
    words = ("perplexity", "tales-sparse", "--text", file, "--json")
    code, output, errors = celosia(*words, "--sparse", "--set", "sparse_lanes=8")
    assert code == 0, errors
    dense = json.loads(celosia(*words)[1])
    sparse = json.loads(output)
    assert sparse["nll"] == dense["nll"]
    assert sparse["weight_bytes"] < 0.5 * dense["weight_bytes"]
    code, _, errors = celosia(*words, "--sparse", "--set", "sparse_lanes=0")
    assert code == 2
    assert "Skipping zero weights needs sparse_lanes, which small lacks" in errors
