"""celosia text: a language model goes on with a prompt on a machine."""

from pathlib import Path

import click

from cli.options import (
    config_options,
    json_option,
    memory_options,
    resolve,
    seed_option,
    simulator_option,
)
from cli.output import cycles_table, progress, report
from generators.decoder_quantize import DecoderOptions
from generators.sampling import Sampling
from generators.text_program import compile_text
from generators.text_sources import load_text
from tb.machines import check_simulator
from tb.memory_timing import FAR, MemoryTiming
from tb.run_text import run_text


@click.command()
@click.argument("checkpoint")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    help="The tokenizer's file; the checkpoint's own if there is one.",
)
@click.option("--prompt", default="", help="What the text begins with.")
@click.option("--steps", default=64, show_default=True, help="Tokens to add, at most.")
@click.option("--temperature", default=0.0, show_default=True, help="0 takes the likeliest token.")
@click.option("--top-p", default=1.0, show_default=True, help="Share of probability drawn from.")
@click.option("--context", default=0, help="Tokens that the cache has room for; 0 for all.")
@click.option("--sinks", default=4, show_default=True, help="First tokens that never leave it.")
@click.option("--kv-bits", default=8, show_default=True, help="Width of the KV cache, 8 or 4.")
@config_options("story")
@simulator_option
@seed_option
@memory_options(FAR)
@json_option
def text(
    checkpoint: str,
    tokenizer: Path | None,
    prompt: str,
    steps: int,
    temperature: float,
    top_p: float,
    context: int,
    sinks: int,
    kv_bits: int,
    source: str,
    overrides: tuple[str, ...],
    simulator: str,
    seed: int,
    timing: MemoryTiming,
    as_json: bool,
) -> None:
    """Go on with a prompt: CHECKPOINT is a llama2.c file, a Hugging Face folder, or a name.

    Every tensor that the machine writes is compared with the golden machine's.
    """
    check_simulator(simulator)
    config = resolve(source, overrides).replace(trace=True)
    sampling = Sampling(temperature, top_p)
    options = DecoderOptions(kv_bits=kv_bits)
    found = load_text(checkpoint, tokenizer)
    with progress("Calibration") as update:
        decoder = found.quantize(options, update)
    capacity = context or min(decoder.places, config.max_row)
    program = compile_text(decoder, config, context=capacity, sinks=min(sinks, capacity - 1))
    result = run_text(
        program,
        found.tokenizer,
        prompt,
        steps,
        simulator,
        sampling=sampling,
        seed=seed,
        show=None if as_json else lambda piece: click.echo(piece, nl=False),
        timing=timing,
    )
    if not as_json:
        click.echo()
    shown = {
        name: value
        for name, value in result.items()
        if name not in ("text", "tokens", "cycles", "counters")
    }
    report(f"{result['model']} on {config.name}", [shown], as_json, result)
    cycles_table(result, as_json)
