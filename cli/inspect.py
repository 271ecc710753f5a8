"""celosia inspect: shows the parts of a model, and whether the machine or the host runs them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.cli.options import override_option, resolve
from celosia.cli.output import announced, as_json, progress, report, say
from celosia.cli.tree import Command
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import is_text, load_text
from celosia.generators.studies.comparison import NEAR, compare
from celosia.generators.studies.inspection import fit
from celosia.generators.studies.inspection import inspect as look


@click.command(cls=Command, example="minilm --config medium")
@click.argument("model")
@click.option(
    "--context", "tokens", type=int, default=0, help="Longest input; 0 for the model's own."
)
@click.option(
    "--config",
    "config_name",
    metavar="NAME_OR_TOML",
    help=f"Whether it fits a TOML file or one of {', '.join(PRESETS)}, or helpful changes.",
)
@click.option(
    "--reference",
    "with_reference",
    is_flag=True,
    help="Compare its floats with those of transformers (folders) or ONNX Runtime (ONNX files).",
)
@override_option
def inspect(
    model: str,
    tokens: int,
    config_name: str | None,
    with_reference: bool,
    overrides: tuple[str, ...],
) -> None:
    """Show the parts of MODEL: layers, functions and tensors.

    For each part the command shows the shape of its result, how many parameters and multiplications
    it has, and whether the machine or the host runs it. With --config it also shows whether the
    model fits the machine.
    """
    if overrides and config_name is None:
        raise InputError("Option --set needs --config")
    config = resolve(config_name, overrides) if config_name is not None else None
    with announced("" if as_json() else f"reading {model}"):
        source = _load(model, tokens)
    result = look(source)
    if config is not None:
        with progress(f"{model} on {config.name}"):
            result["fit"] = fit(source, config)
    if with_reference:
        with progress(f"{model} beside its reference"):
            result["reference"] = compare(source, Path(model), tokens)
    differs = (result.get("reference", {}).get("difference") or 0.0) > NEAR
    title = f"{result['model']}, {result['kind']}"
    report(title, result["parts"], result, wrong=differs)
    if as_json():
        return
    shape = ", ".join(map(str, result["input"]))
    say(
        f"input [{shape}], {result['parameters']:,} parameters, {result['products']:,} products, "
        f"{result['host_products']:,} of them on the host"
    )
    for name, own in result["others"].items():
        say(f"input {name} {own}")
    if result["labels"]:
        say(f"classes: {', '.join(result['labels'])}")
    if not result["compared"]:
        say("not compared with the graph's own run, which takes long; celosia run compares")
    for name in result["unused"]:
        say(f"not used: {name}")
    if config is not None:
        say(_fit(result["fit"]))
    if with_reference:
        say(_reference(result["reference"]))


def _fit(fitting: Mapping[str, Any]) -> str:
    if fitting["refused"]:
        return f"does not run on {fitting['config']}: {fitting['refused']}"
    left_out = fitting["zero_tiles_left_out"]
    return (
        f"runs on {fitting['config']}: {fitting['program_words']:,} program words, "
        f"{fitting['memory_bytes']:,} bytes of external memory"
        + (f", {left_out:,} tiles of zeros left out" if left_out else "")
    )


def _reference(comparison: Mapping[str, Any]) -> str:
    if comparison["refused"]:
        return f"not compared with a reference: {comparison['refused']}"
    verdict = "as" if comparison["difference"] <= NEAR else "not as"
    return (
        f"{verdict} {comparison['library']} computes: of {comparison['inputs']} random inputs "
        f"outputs differ by at most {comparison['difference']:.2g} of the largest"
    )


def _load(model: str, tokens: int):
    return load_text(model) if is_text(model) else load_source(model, tokens, quick=True)
