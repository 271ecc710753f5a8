"""Fuzzing with random decoders, compiled for random machines."""

from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.formats import OPERAND_BITS
from celosia.arch.isa import RING_SLOTS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.checks import value_block
from celosia.generators.lower.text_compiler import compile_text, skips_zeros
from celosia.generators.quantize.options import INT8, MIXED, Quantization
from celosia.tb.machine.memory_timing import MemoryTiming
from celosia.tb.models.text_session import TextSession
from celosia.tb.verify.fuzz.machines import circuit, random_format, random_text_machine, simulated
from celosia.tb.verify.random_models import random_text_model

STEPS = 2
"""Tokens behind a prompt."""
LENGTH = 12
"""Most tokens of a text."""


def trial(rng: np.random.Generator, *, on_circuit: bool) -> dict[str, Any]:
    """Compile a random decoder for a random machine, and run it on a random text.

    The logits that the golden machine computes must equal the integer reference. If ``on_circuit``
    is true, the circuit also processes the text, and its tensors must equal the golden machine's.
    The result is the dictionary of :func:`celosia.tb.verify.fuzz.models.run`, without ``refused``.
    Raises :class:`InputError` if the compiler refuses the pair of decoder and machine.
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
    context = int(rng.integers(STEPS + 1, min(LENGTH, decoder.places) + 1))
    program = compile_text(decoder, config, context=context, sparse=skips_zeros(config))
    numbers = rng.integers(0, model.vocabulary, 2 * LENGTH).tolist()
    result = {"mismatch": "", "words": len(program.words)}
    session = TextSession(program, "golden")
    wrong = wrong_tensors(session, context, numbers)
    if wrong or not on_circuit:
        return result | {"mismatch": f"{wrong} differ from the reference" if wrong else ""}
    with circuit(rng, program.config, program.memory_bytes) as (machine, timing):
        session = TextSession(program, machine, timing)
        wrong = wrong_tensors(session, context, numbers)
    if wrong:
        result["mismatch"] = f"{wrong} of the circuit differ"
    counted = session.turns[-1].cycles
    if config.throttle:
        return result  # it may be hot, which no prediction knows
    return result | {"cycles": counted, "predicted": _predicted(program, context, timing)}


def random_options(
    rng: np.random.Generator, config: Config, model: TextDescription
) -> Quantization:
    """Return random quantization options for a decoder, from those that ``config`` supports."""
    options = {
        **random_format(rng, config),
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


def wrong_tensors(session: TextSession, context: int, numbers: list[int]) -> str:
    """Run a prompt and ``STEPS`` further tokens; return the names of wrong tensors as one text.

    ``session`` runs the decoder on a machine. ``context`` is the number of tokens of the prompt and
    the further tokens together. ``numbers`` is a list of token numbers: the first ``context -
    STEPS`` of them are the prompt, and the last ``STEPS`` are the further tokens. The decoder of an
    encoder-decoder also needs a source text. It consists of the first numbers of the same list, one
    for each source position.

    A tensor is wrong if it differs from the golden machine's tensor. If the session's machine is
    the golden machine, only logits and chosen tokens are compared, with the integer reference. The
    names are separated by commas. The text is empty if no tensor is wrong.
    """
    if session.program.source_positions:
        session.encode(numbers[: session.program.source_positions])
    else:
        session.begin()
    session.take(numbers[: context - STEPS])
    for number in numbers[-STEPS:]:
        session.choose()
        session.step(number)
    session.logits()
    return ", ".join(name for turn in session.turns for name in turn.wrong)


def _predicted(program: Artefact, context: int, timing: MemoryTiming) -> int:
    """Return the predicted cycles of the last step."""
    source = program.source_positions
    run = program.run(context - 1, source=source)
    return program.expect(run, timing.latency, timing.interval).cycles
