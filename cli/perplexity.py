"""celosia perplexity: how well a language model foresees a text, in integers and in floats."""

from dataclasses import asdict
from pathlib import Path

import click

from arch.config import Config
from arch.errors import InputError
from cli.options import (
    ACTIVATIONS_OPTION,
    BITS_OPTION,
    FUNCTIONS_OPTION,
    LOSS_OPTION,
    RANK_OPTION,
    WIDE,
    asked_format,
    config_options,
    json_option,
    kv_options,
    seed_option,
    weight_options,
)
from cli.output import progress, report
from cli.paths import FILE, MODEL
from cli.text_options import searched_text
from generators.nested import check_bits, coarser, is_nested
from generators.perplexity import measure, read_texts
from generators.quantize.multipliers import held_parameters
from generators.quantize.options import Quantization
from generators.text_sources import load_text


@click.command()
@click.argument("checkpoint", type=MODEL)
@click.option("--tokenizer", type=FILE, help="The tokenizer's file; a folder's own without it.")
@click.option("--text", "path", type=FILE, required=True, help="Texts, <|endoftext|> in between.")
@kv_options
@click.option("--float", "in_float", is_flag=True, help="Measure the float model.")
@click.option("--count", type=int, help="Texts to take; all without it.")
@click.option("--verbatim", is_flag=True, help="Leave typographers' quotes and dashes.")
@click.option("--slots", default=0, help="Tokens that the KV cache has room for; 0 for all.")
@click.option("--sinks", default=4, show_default=True, help="First tokens that never leave it.")
@click.option(
    "--samples",
    default=Quantization.texts,
    show_default=True,
    help="Texts to make up and calibrate on.",
)
@weight_options
@RANK_OPTION
@BITS_OPTION
@LOSS_OPTION
@FUNCTIONS_OPTION
@ACTIVATIONS_OPTION
@seed_option
@config_options("small")
@json_option
def perplexity(
    checkpoint: str,
    tokenizer: Path | None,
    path: Path,
    kv_bits: int,
    kv_whole: int | None,
    kv_blocks: int,
    in_float: bool,
    count: int | None,
    verbatim: bool,
    slots: int,
    sinks: int,
    samples: int,
    weights: str,
    group: int,
    low_rank: int,
    bits: tuple[int, ...],
    loss: float | None,
    functions: str,
    activations: str,
    seed: int,
    config: Config,
    as_json: bool,
) -> None:
    """Measure how well CHECKPOINT (a llama2.c file, a folder or a name) foresees a text.

    The integers are those of the golden model, which the machine's equal bit for bit; its
    configuration counts where it does not hold all bits of requantization parameters.
    """
    options = Quantization(
        kv_bits=kv_bits,
        whole=kv_whole,
        block=kv_blocks,
        texts=samples,
        seed=seed,
        weights=asked_format(weights, loss),
        group=group,
        low_rank=low_rank,
        wide_functions=functions == WIDE,
        activations=activations,
    )
    check_bits(bits, weights)
    if len(bits) > 1:
        raise InputError(f"Perplexity is measured with one number of bits, not {len(bits)}")
    texts = read_texts(path, verbatim=verbatim)
    if count is not None and not 1 <= count <= len(texts):
        raise InputError(f"Count of texts must be from 1 to {len(texts)}, not {count}")
    source = load_text(checkpoint, tokenizer)
    decoder = None
    if not in_float:
        options = searched_text(source, options, loss)
        with progress("Calibration") as update:
            decoder = source.quantize(options, update)
        decoder = coarser(decoder, bits[0]) if is_nested(decoder) else decoder
        decoder = held_parameters(decoder, config)
    name = source.description.name
    with progress(f"{name}, {'float' if in_float else 'integers'}") as update:
        found = measure(
            source,
            decoder,
            texts[:count],
            slots=0 if in_float else slots,
            sinks=sinks if slots else 0,
            progress=update,
        )
    result = {
        **asdict(found),
        "perplexity": found.perplexity,
        "kv_bits": None if in_float else kv_bits,
        "kv_blocks": None if in_float else kv_blocks,
        "weights": None if in_float else weights,
        "low_rank": None if in_float else low_rank,
        "bits": None if in_float else bits[0],
        "functions": None if in_float else functions,
        "activations": None if in_float else activations,
        "chosen": dict(options.chosen) or None,
        "weight_bytes": None if decoder is None else decoder.weight_bytes,
        "texts": len(texts[:count]),
    }
    report(f"{name} on {path.name}", [result], as_json, result)
