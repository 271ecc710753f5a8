"""celosia bench compiler: measure the processor time of compiling large models."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import numpy as np

from celosia.arch.errors import check_known
from celosia.arch.presets import PRESETS
from celosia.cli.compile import peak_bytes
from celosia.cli.output import Update, progress, report
from celosia.cli.tree import Command
from celosia.generators.frontend import text_shapes
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.lower.encoder_compiler import compile_quantized
from celosia.generators.lower.options import Options
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_decoder, quantize_model
from celosia.tb.verify.random_models import random_inputs, random_weights

_BASE = {"dim": 768, "layers": 12, "heads": 12, "ffn": 3072, "tokens": 128}
MODELS = (
    ModelDescription(
        **_BASE | {"name": "bert-base", "embedding": "tokens", "vocabulary": 30522, "types": 2},
        **{"embedding_norm": True, "variable": True, "pooling": "none", "placement": "post"},
        final_norm=False,
    ),
    ModelDescription(
        **_BASE | {"name": "vit-base", "tokens": 196, "features": 768, "classes": 1000},
        **{"embedding": "linear", "class_token": True, "pooling": "class"},
    ),
    TextDescription(
        **{"name": "llama-42M", "vocabulary": 32000, "positions": 1024, "dim": 512},
        **{"layers": 8, "heads": 8, "ffn": 1376},
    ),
)
"""Shapes of published encoders, and of a language model of 42 million weights."""
MEDIUM = PRESETS["medium"]
LARGE = MEDIUM.replace(scratchpad_bytes=1 << 20)
DEEP = LARGE.replace(program_depth=1 << 14, rotary=True, argmax=True)
"""The machines of BERT and other encoders, of ViT, and of the language model."""
LATENCY = 8
"""Cycles from a request to external memory to the first word, for predictions."""
CONTEXT = 256
"""Tokens of the language model's cache."""


@click.command("compiler", cls=Command, example="llama-42M")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def bench_compiler(names: tuple[str, ...]) -> None:
    """Compile models that have the shapes of BERT, ViT and Llama, and random weights.

    The table has the seconds of processor time that three steps take: drawing random weights,
    quantization, and the compiler. The machine is the preset `medium`; for ViT and Llama its
    scratchpad has 1 MB. Column `cycles` is the predicted number of cycles of one inference, or of
    the last token for which Llama's cache has room. Column `peak_bytes` is the largest amount of
    memory that the command has used since its start.
    """
    known = {model.name: model for model in MODELS}
    for name in names:
        check_known("model", name, [*known])
    rows = []
    for name in names or known:
        with progress(name) as update:
            rows.append(measured(known[name], update))
    report("Compiling", rows, {"models": rows})


def measured(model: ModelDescription | TextDescription, update: Update) -> dict[str, Any]:
    """Compile a model with random weights; return times and other measurements by name.

    The times are processor time (seconds) of three steps: drawing random weights, quantization, and
    the compiler. Before each step, ``update(done, total)`` is called with the number of finished
    steps and the number of all steps.
    """
    rng, row = np.random.default_rng(1), {"model": model.name}
    config = LARGE if model.name == "vit-base" else MEDIUM

    @contextmanager
    def step(name: str) -> Iterator[None]:
        update(len(row) - 1, 3)
        begin = time.process_time()
        yield
        row[f"{name}_seconds"] = time.process_time() - begin

    with step("random"):
        text = isinstance(model, TextDescription)
        weights = text_shapes.random_weights(model) if text else random_weights(rng, model)
    with step("quantize"):
        if text:
            quantized = quantize_decoder(model, weights, 0, Quantization(texts=1, length=8))
        else:
            quantized = quantize_model(model, weights, random_inputs(rng, model)[:1], config)
    with step("compile"):
        if text:
            program = compile_text(quantized, DEEP, context=CONTEXT)
        else:
            program = compile_quantized(quantized, config, Options())
    cycles = program.predict_longest(LATENCY)
    return row | {"words": len(program.words), "cycles": cycles, "peak_bytes": peak_bytes()}
