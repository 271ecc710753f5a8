"""Fuzzing of schedules: different programs of a random model must compute the same integers."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import RING_SLOTS
from celosia.arch.rules import WIDE_SUMS
from celosia.generators.campaign.case import Case
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.lower.assembly import settle
from celosia.generators.lower.batch import batched
from celosia.generators.lower.checks import checked_graph
from celosia.generators.lower.choices import Choices
from celosia.generators.lower.encoder_compiler import compiled_trial
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.plan import MOST_ROWS
from celosia.generators.lower.planner import plan
from celosia.generators.lower.residence import Cache
from celosia.generators.lower.schedule import first_plans, homes
from celosia.generators.lower.search import Search
from celosia.generators.lower.staging import least_size
from celosia.generators.lower.text_compiler import PIECES, data_placements, skips_zeros
from celosia.generators.lower.text_program import text_program, text_trial
from celosia.generators.quantize.quantize import quantize_model
from celosia.tb.models.self_check import STEPS, decoder_error
from celosia.tb.verify.fuzz import models, texts
from celosia.tb.verify.fuzz.machines import random_machine, random_text_machine
from celosia.tb.verify.random_models import (
    random_inputs,
    random_model,
    random_text_model,
    random_weights,
    with_zero_tiles,
)

Random = np.random.Generator
Model = TypeVar("Model", ModelDescription, TextDescription)

_DECODERS = 7  # every seventh case is a decoder
_TRIES = 1000  # of pairs of a machine and a model; about one in three is not refused
_PLANS = 6  # that are tried for a model, and programs that run
_PROGRAMS = 2
_TILES = 1, 1, 2, 3  # columns of a model's matrices, at most
_TOKENS = 5
_ROTATED = ("1",), ("1", "01", "10")  # layers with a rotation, of one layer and of several
_DEPTH = 1200  # words; longer programs are refused, most before they are made
LARGE = "blocks"
"""The kind of cases whose models have more rows, columns and layers."""
_LARGE_DEPTH = 1 << 12  # words
_LARGE_TOKENS = 40  # fewer
_LARGE_TILES = 1, 2, 3, 4  # columns, at most
_LARGE_LAYERS = 5  # fewer
_CONTEXT = 7  # tokens, at most
_ZEROS = 0.0, 0.0, 0.0, 0.7  # shares of tiles
_BANK = 8, 13  # logarithm of a bank's bytes
_UNITS = dict.fromkeys(("b_transpose", "softmax", "norm", "activation"), True)
_ROWS = 64  # at least, of a decoder's sums and norms


def run(case: Case) -> dict[str, Any]:
    """Compile a random model with random compiler settings, and check the programs.

    Each program must be legal and compute the integer reference's tensors. Cases of the kind
    :data:`LARGE` have tensors of several blocks. The result is a dictionary: ``mismatch`` is the
    first error or empty, ``programs`` the number of programs, ``refused`` the number of refused
    settings.
    """
    rng, refused = case.rng(), 0
    outcomes = _decoder if case.index % _DECODERS == _DECODERS - 1 else _encoder
    if case.kind == LARGE:
        outcomes = partial(_encoder, large=True)
    for _ in range(_TRIES):
        made: set[tuple[int, ...]] = set()
        try:
            for words, mismatch in outcomes(rng):
                made.add(words)
                refused += not words
                if mismatch:
                    return {"mismatch": mismatch, "programs": len(made), "refused": refused}
                if len(made - {()}) == _PROGRAMS:
                    break
        except InputError:
            refused += 1
        if made - {()}:
            return {"mismatch": "", "programs": len(made - {()}), "refused": refused}
    return {"mismatch": f"{_TRIES} pairs of a machine and a model were refused", "refused": refused}


Outcomes = Iterator[tuple[tuple[int, ...], str]]
"""Words of each program, none for refused choices, and its first error as a sentence."""


def _encoder(rng: Random, *, large: bool = False) -> Outcomes:
    """Yield the outcomes of one encoder; raise :class:`InputError` if the pair is refused."""
    config = random_machine(rng)
    model = (_large if large else _small)(rng, random_model(rng), config)
    config = config.replace(
        program_depth=_LARGE_DEPTH if large else _DEPTH,
        acc_depth=int(rng.integers(4, 100)),
        scratchpad_bytes=config.scratchpad.banks << int(rng.integers(*_BANK)),
        scratchpad_align=1,
        max_k=max(_ROWS, config.read("max_k")),
        max_row=max(_ROWS, config.vector.longest_row),
        **_UNITS,
    )
    weights = with_zero_tiles(rng, random_weights(rng, model), config, float(rng.choice(_ZEROS)))
    inputs, options = random_inputs(rng, model, 2), models.random_options(rng, config)
    quantized = quantize_model(model, weights, inputs, config, options)
    alone = model.variable or model.class_token or model.pooling == "class"
    batch = 1 + int(rng.random() < 0.3 and not alone)
    search = Search(batched(quantized, batch), config, batch)
    checked_graph(search.model, config, Cache(quantized.places, 0))
    kinds = [kind for kind in first_plans(search.model, config, sparse=options.sparse) if kind]
    for _ in range(_PLANS):
        try:
            trial = search.try_out(_plan(rng, search, kinds[int(rng.integers(len(kinds)))]))
            trial = search.finish(settle(trial) if rng.random() < 0.1 else trial)
        except FitError:
            yield (), ""
            continue
        compiled = compiled_trial(quantized, config, trial, batch)
        wrong = models.differs(compiled, weights, inputs[:batch])
        yield tuple(compiled.words), wrong and f"{wrong} with {compiled.plan}"


def _small(rng: Random, model: Model, config: Config) -> Model:
    """Return a model with fewer columns and layers, mostly so few that a program is short."""
    most = config.array.cols * int(rng.choice(_TILES))
    kv_heads = max(1, min(model.kv_heads, most // model.head_dim))
    heads = kv_heads * max(
        1, min(model.heads // model.kv_heads, most // kv_heads // model.head_dim)
    )
    whole = model.dim == model.heads * model.head_dim
    layers = min(model.layers, int(rng.integers(1, 4)))
    dim = heads * model.head_dim if whole else min(model.dim, most)
    fields: dict[str, Any] = {"layers": layers, "heads": heads, "kv_heads": kv_heads, "dim": dim}
    if isinstance(model, TextDescription):
        if model.position == "rotary":
            fields["head_norms"] = bool(rng.random() < 0.3)
            fields["rotated"] = str(rng.choice(_ROTATED[layers > 1]))
    else:
        fields["features"] = dim if model.features == model.dim else model.features
        tokens = int(rng.integers(1, _TOKENS))
        # The shortest sequence with a window has tokens outside.
        fields["tokens"] = _TOKENS + tokens if model.window else min(model.tokens, tokens)
        fields["window"] = min(model.window, int(rng.integers(1, 4)))
        fields["global_tokens"] = min(model.global_tokens, 2)
    return model.replace(ffn=min(model.ffn, most), **fields)


def _large(rng: Random, model: ModelDescription, config: Config) -> ModelDescription:
    """Return a model with more rows and layers, and with a few tile columns."""
    most = config.array.cols * int(rng.choice(_LARGE_TILES))
    tokens = int(rng.integers(1, _LARGE_TOKENS))
    tokens = max(tokens, 2 * model.window + model.global_tokens + 2) if model.window else tokens
    sizes = {"ffn": int(rng.integers(1, 2 * most + 1)), "tokens": tokens}
    if model.dim != model.heads * model.head_dim:
        sizes["dim"] = int(rng.integers(1, most + 1))
        sizes["features"] = sizes["dim"] if model.features == model.dim else model.features
    return model.replace(layers=int(rng.integers(1, _LARGE_LAYERS)), **sizes)


def _plan(rng: Random, search: Search, kind: list[list[Choices]]) -> Choices:
    """Return choices that a search can come to from one of the first plans of a kind."""
    series = kind[int(rng.integers(len(kind)))]
    drawn = series[int(len(series) * rng.random() ** 3)]  # programs of small loads are long
    for changes in search.changes(drawn):
        if changes and rng.random() < 0.5:
            drawn = replace(drawn, **changes[int(rng.integers(len(changes)))])
    drawn = replace(drawn, ends_ahead=bool(rng.random() < 0.3))
    kept = homes(search.model, search.config, drawn)
    if kept and rng.random() < 0.5:
        drawn = replace(drawn, home=kept[int(rng.integers(len(kept)))])
    return drawn


def _decoder(rng: Random) -> Outcomes:
    """Yield the outcomes of one decoder; raise :class:`InputError` if the pair is refused."""
    config = _text_machine(rng)
    model = random_text_model(rng)
    while (model.gated or model.position == "rotary") and not config.vector.rotary:
        model = random_text_model(rng)
    model = _small(rng, model, config)
    quantized = untrained(
        model, texts.random_options(rng, config, model), int(rng.integers(1 << 30))
    )
    context = int(rng.integers(STEPS + 1, min(_CONTEXT, quantized.places) + 1))
    sinks = int(rng.integers(min(context, 3)))
    cache = Cache(context, sinks, recompute=bool(rng.random() < 0.2))
    decoder = checked_graph(quantized, config, cache)
    numbers = rng.integers(0, model.vocabulary, 2 * texts.LENGTH).tolist()
    text = [*numbers[: context - STEPS], *numbers[-STEPS:]]
    for _ in range(_PLANS):
        placements = data_placements(decoder, config, cache, MOST_ROWS, 1)
        placement = placements[int(rng.integers(len(placements)))]
        placement = replace(placement, rows=int(rng.integers(1, placement.rows + 1)))
        most = max(least_size(config), int(rng.choice(PIECES)) >> int(rng.integers(10)))
        try:
            made = plan(decoder, config, cache, placement, most, sparse=skips_zeros(config))
            program = text_program(text_trial(made), most)
        except InputError:
            yield (), ""
            continue
        wrong = decoder_error(program, [text])
        yield (
            tuple(program.words),
            wrong and f"{wrong} with {placement}, loads {most}",
        )


def _text_machine(rng: Random) -> Config:
    """Return a random machine that refuses few decoders before they have a program."""
    config = random_text_machine(rng)
    rotary = not (config.array.cols % 2 or config.vector.lanes % 2)
    config = config.replace(
        operand_width=OPERAND_BITS,
        acc_width=WIDE_SUMS,
        max_k=max(_ROWS, config.read("max_k")),
        max_row=max(_ROWS, config.vector.longest_row),
        scratchpad_align=1,
        program_depth=2 * _DEPTH,
        **_UNITS,
        rotary=rotary,
    )
    return config if config.array.weight_depth > RING_SLOTS else config.replace(row_factors=0)
