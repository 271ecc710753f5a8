"""celosia inspect: what a model is made of, and what of it runs where."""

from pathlib import Path

import click

from cli.options import json_option
from cli.output import report
from generators.inspection import inspect as look
from generators.sources import load_source
from generators.text_sources import is_text, load_text


@click.command()
@click.argument("model")
@click.option("--tokens", type=int, default=0, help="Longest input; 0 for the model's own.")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    help="The tokenizer's file of a llama2.c checkpoint.",
)
@json_option
def inspect(model: str, tokens: int, tokenizer: Path | None, as_json: bool) -> None:
    """Show the parts of MODEL, their shapes and sizes, and what runs on the machine or the host."""
    result = look(_load(model, tokens, tokenizer))
    report(f"{result['model']}, {result['kind']}", result["parts"], as_json, result)
    if as_json:
        return
    shape = ", ".join(map(str, result["input"]))
    click.echo(
        f"input [{shape}], {result['parameters']:,} parameters, {result['products']:,} products, "
        f"{result['host_products']:,} of them on the host"
    )
    if result["labels"]:
        click.echo(f"classes: {', '.join(result['labels'])}")
    for name in result["unused"]:
        click.echo(f"not used: {name}")


def _load(model: str, tokens: int, tokenizer: Path | None):
    return load_text(model, tokenizer) if is_text(model) else load_source(model, tokens)
