"""celosia perplexity: how well a language model foresees a text, in integers and in floats."""

from dataclasses import asdict
from pathlib import Path

import click

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.cli.format_options import KV_KEYS, NORM_KEYS, Formats, quantize_options
from celosia.cli.options import config_options, json_option, seed_option
from celosia.cli.output import progress, report, say, warn
from celosia.cli.paths import FILE, MODEL
from celosia.cli.tree import Command
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.graph.fewer_planes import coarser, is_nested
from celosia.generators.lower.residence import Cache
from celosia.generators.lower.text_compiler import check_sparse
from celosia.generators.lower.weights import coded_bytes
from celosia.generators.quantize.multipliers import held_parameters
from celosia.generators.quantize.options import Quantization
from celosia.generators.studies.mixtures import search_formats
from celosia.generators.studies.perplexity import measure, read_texts


@click.command(cls=Command, example="tales --text README.md")
@click.argument("checkpoint", type=MODEL)
@click.option("--tokenizer", type=FILE, help="The tokenizer's file; a folder's own without it.")
@click.option("--text", "path", type=FILE, required=True, help="Texts, <|endoftext|> in between.")
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
@quantize_options(KV_KEYS, NORM_KEYS)
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
    folded: bool,
    deferred: bool,
    in_float: bool,
    count: int | None,
    verbatim: bool,
    slots: int,
    sinks: int,
    samples: int,
    formats: Formats,
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
        folded=folded,
        deferred=deferred,
        texts=samples,
        seed=seed,
        **formats.quantization,
    )
    bits = formats.one_bits("Perplexity is measured")
    if slots:
        Cache(slots, sinks)
    if formats.sparse:
        check_sparse(config)
    texts = read_texts(path, verbatim=verbatim)
    if count is not None and not 1 <= count <= len(texts):
        raise InputError(f"Count of texts must be from 1 to {len(texts)}, not {count}")
    source = load_text(checkpoint, tokenizer)
    decoder = None
    if not in_float:
        asked = source.description.name, source, config, options, formats.loss, progress
        options, summary = search_formats(*asked)
        if summary:
            say(f"celosia: {summary}", err=True)
        with progress("Calibration") as update:
            decoder = source.quantize(options, update)
        decoder = coarser(decoder, bits) if is_nested(decoder) else decoder
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
    size = None
    if decoder is not None:
        size = coded_bytes(decoder, config) if formats.sparse else decoder.weight_bytes
    result = {
        **asdict(found),
        "perplexity": found.perplexity,
        "kv_bits": None if in_float else kv_bits,
        "kv_blocks": None if in_float else kv_blocks,
        **{key: None if in_float else value for key, value in formats.figures.items()},
        "bits": None if in_float else bits,
        "chosen": dict(options.chosen) or None,
        "weight_bytes": size,
        "texts": len(texts[:count]),
    }
    report(f"{name} on {path.name}", [result], as_json, result)
    if found.cut:
        warn(
            f"{found.cut} of {result['texts']} texts have more tokens than model {name} has "
            f"positions, {source.description.positions}; what is behind these is left out"
        )
