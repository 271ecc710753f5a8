"""Formats of weights and activations: the same options for every command that makes integers."""

import json
from pathlib import Path

import click
import pytest

from celosia.cli.format_options import LAYER_KEYS, MODEL_KEYS, WEIGHT_KEYS, Formats, read_keys
from celosia.cli.main import celosia as tree
from celosia.cli.tree import commands

NAMES = set(Formats.__dataclass_fields__)
EVERY = dict(commands(tree))
TAKING = (
    *("run", "evaluate", "compile"),
    *("bench decode", "bench pins"),
)
"""Commands that make integers of a model as the options say."""
TALES = ("tales", "--config", "small", "--context", "24", "--prompt", "one", "--steps", "2")


@pytest.mark.parametrize("name", TAKING)
def test_every_command_takes_the_same_formats(celosia, name: str) -> None:
    """Its help names each key; a wrong one is refused with those that are close."""
    (option,) = [each for each in EVERY[name].params if "--quantize" in each.opts]
    assert isinstance(option, click.Option)
    keys = {"bench pins": WEIGHT_KEYS, "bench decode": LAYER_KEYS}.get(name, MODEL_KEYS)
    assert all(f"{key}: {value.meaning}" in str(option.help) for key, value in keys.items())


def test_no_other_command_has_some_of_them() -> None:
    having = {
        name
        for name, command in EVERY.items()
        for option in command.params
        if NAMES & {option.name} or "--quantize" in option.opts
    }
    assert having == set(TAKING)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wieghts=int4", "Unknown key of --quantize 'wieghts'; did you mean weights?"),
        ("int4", "Option --quantize takes KEY=VALUE, not 'int4'"),
        ("group=x", "Option --quantize group takes an integer, not 'x'"),
        ("loss=x", "Option --quantize loss takes a number, not 'x'"),
        ("functions=nope", "Option --quantize functions must be table or wide, not 'nope'"),
        ("kv=int4", "Option --quantize kv is not for digits, which is an encoder"),
    ],
)
def test_a_wrong_key_or_value_is_refused(celosia, text: str, message: str) -> None:
    code, output, errors = celosia("run", "digits", "--quantize", text)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert message in errors


def test_keys_are_read_from_one_value_or_several() -> None:
    with click.Context(click.Command("run")):
        pairs = read_keys(["weights=nested,bits=8,4", "norms=folded"], MODEL_KEYS)
    assert (pairs["weights"], pairs["bits"], pairs["norms"]) == ("nested", (8, 4), "folded")
    assert set(pairs) > NAMES


@pytest.mark.parametrize(
    "formats",
    [
        ("--quantize", "weights=int4", "--quantize", "group=8", "--quantize", "activations=mixed"),
        ("--quantize", "weights=ternary", "--quantize", "low-rank=2"),
        ("--quantize", "weights=nested"),
    ],
)
def test_the_formats_have_one_meaning(celosia, tmp_path: Path, formats: tuple[str, ...]) -> None:
    """The bytes of weights and the format that each command reports."""
    file = tmp_path / "text.txt"
    file.write_text("one day a quiet fox")
    ways = {
        "text": ("run", *TALES, "--sim", "golden"),
        "perplexity": ("evaluate", "tales", "--text", file),
        "compile": ("compile", *TALES[:5], "--out", tmp_path / "out"),
    }
    outputs = {}
    for name, words in ways.items():
        code, output, errors = celosia(*words, *formats, "--json")
        assert code == 0, errors
        result = json.loads(output)
        outputs[name] = [result[key] for key in ("weights", "group", "activations", "low_rank")]
        outputs[name].append(result["weight_bytes"])
    assert outputs["text"] == outputs["perplexity"] == outputs["compile"]
    layer = ("bench", "decode", "16x32x8", "--config", "small")
    code, output, errors = celosia(*layer, "--sim", "golden", *formats, "--json")
    assert code == 0, errors
    result = json.loads(output)
    assert result["mismatches"] == 0
    assert [result[key] for key in ("weights", "group", "activations", "low_rank")] == outputs[
        "text"
    ][:4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "decode"), "Unknown key of --quantize 'loss'"),
        (("bench", "pins", "--board", "ulx3s_85f"), "Unknown key of --quantize 'loss'"),
        (
            ("run", "examples/onnx/rows.onnx"),
            "Option loss measures accuracy on the digits, which examples/onnx",
        ),
    ],
)
def test_a_search_needs_what_has_a_loss(celosia, words: tuple[str, ...], message: str) -> None:
    code, _, errors = celosia(*words, "--quantize", "loss=0.5")
    assert code == 2
    assert message in errors
    assert errors.count("\n") == 1


def test_sparse_weights_are_counted_in_their_code(celosia, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("one day a quiet fox saw a river")
    words = ("evaluate", "tales-sparse", "--text", file, "--json")
    code, output, errors = celosia(*words, "--set", "sparse_lanes=8")
    assert code == 0, errors
    dense = json.loads(celosia(*words)[1])
    sparse = json.loads(output)
    assert sparse["nll"] == dense["nll"]
    assert sparse["weight_bytes"] < 0.5 * dense["weight_bytes"]
    assert (sparse["sparse"], dense["sparse"]) == (True, False)
