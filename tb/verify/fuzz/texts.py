"""Fuzzing with random decoders, compiled for random machines."""

from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import RING_SLOTS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.graph.quantized import Decoder
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.checks import value_block
from celosia.generators.lower.plan import MOST_ROWS
from celosia.generators.lower.text_compiler import compile_text, skips_zeros
from celosia.generators.quantize.options import INT8, MIXED, Quantization
from celosia.tb.models.self_check import STEPS, session_of, widths_of, wrong_tensors
from celosia.tb.models.text_session import TextSession
from celosia.tb.verify.fuzz.machines import circuit, random_format, random_text_machine, simulated
from celosia.tb.verify.random_models import random_text_model

LENGTH = 12
"""Most tokens of the cache."""


def trial(rng: np.random.Generator, *, on_circuit: bool) -> dict[str, Any]:
    """Compile a random decoder for a random machine, and check its results for random texts.

    The golden machine is compared with the integer reference, and the circuit with both if
    ``on_circuit`` is true. ``mismatch`` names the wrong tensors, or is empty. Raises
    :class:`InputError` if the compiler refuses the decoder.
    """
    config, model = random_text_machine(rng), random_text_model(rng)
    # Most of the reasons for a refusal during calibration.
    while rng.random() < 0.9 and (
        config.array.operand_width != OPERAND_BITS
        or (model.position == "rotary") > config.vector.rotary
        or (config.row_factors > 0) > (model.norm == "rmsnorm" and not model.source_layers)
    ):
        config, model = random_text_machine(rng), random_text_model(rng)
    config = simulated(config) if on_circuit else config
    options = random_options(rng, config, model)
    decoder = untrained(model, options, int(rng.integers(1 << 30)))
    program = compile_text(decoder, config, **_random_use(rng, decoder, config))
    words, bits = random_texts(rng, program), int(rng.choice(widths_of(program)))
    result = {"mismatch": "", "words": len(program.words)}
    session = session_of(program, "golden")
    wrong = wrong_tensors(session, words, bits)
    if wrong or not on_circuit:
        return result | {"mismatch": f"{wrong} differ from the reference" if wrong else ""}
    with circuit(rng, program.config, program.memory_bytes) as (machine, timing):
        session = session_of(program, machine, timing)
        wrong = wrong_tensors(session, words, bits)
    if wrong:
        result["mismatch"] = f"{wrong} of the circuit differ"
    counted = session.turns[-1].cycles
    if config.throttle or program.batch > 1:
        return result  # it may be hot, which no prediction knows
    return result | {"cycles": counted, "predicted": _predicted(session)}


def _random_use(rng: np.random.Generator, decoder: Decoder, config: Config) -> dict[str, Any]:
    """Return random arguments of ``compile_text``: cache, chunks, texts of a run, and search."""
    context = int(rng.integers(STEPS + 1, min(LENGTH, decoder.places) + 1))
    return {
        "context": context,
        "sinks": int(rng.integers(context)) * int(rng.random() < 0.5),
        "rows": int(rng.integers(1, MOST_ROWS + 1)),
        "texts": 1 + int(rng.random() < 0.2),
        "recompute": bool(rng.random() < 0.1),
        "sparse": skips_zeros(config),
        "search": bool(rng.random() < 0.5),
    }


def random_texts(rng: np.random.Generator, program: Artefact) -> list[list[int]]:
    """Return two random texts for a compiled decoder, each a list of token numbers.

    If the model accepts more tokens than its KV cache has room for, a text may be longer than the
    cache.
    """
    longest = min(program.places, program.cache.capacity + LENGTH // 2)
    lengths = rng.integers(STEPS + 1, longest + 1, 2)
    return [rng.integers(0, program.vocabulary, length).tolist() for length in lengths]


def random_options(
    rng: np.random.Generator, config: Config, model: TextDescription
) -> Quantization:
    """Return random quantization options for a decoder, from those that ``config`` supports."""
    options = {
        **random_format(rng, config),
        "alike": bool(rng.random() < 0.8),
        "balance": None if rng.random() < 0.8 else float(rng.random()),
        "wide_functions": config.wide_functions and bool(rng.integers(2)),
    }
    if config.packed_cache and config.array.weight_depth > RING_SLOTS:
        options["kv_bits"] = 4
        options["whole"] = config.low_rows
        if config.block_exponents:
            options["block"] = value_block(model, config)
    elif config.array.wide and rng.random() < 0.5:
        options["activations"] = MIXED
    if config.row_factors and options.get("weights", INT8) == INT8:
        options |= {"folded": True, "deferred": True}
    return Quantization(texts=2, length=min(LENGTH, model.positions), **options)


def _predicted(session: TextSession) -> int:
    """Return the predicted cycles of the last step."""
    program, timing = session.program, session.timing
    run = program.run(session.length - 1, source=session.source, bits=session.bits)
    return program.expect(run, timing.latency, timing.interval).cycles
