"""Trial of a model from a file or folder: whether it is supported, and its quantization error."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import is_text, load_text
from celosia.generators.lower.banks import LATENCY
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.lower.options import Options
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.floats import forward
from celosia.generators.runtime.golden import GoldenModel
from celosia.tb.models.run_inputs import cosine
from celosia.tb.models.text_session import TextSession
from celosia.tb.models.whole_model import differing

_SAMPLES, _RUN = 32, 3
_FEWEST = 2
_PRODUCTS = 1 << 34
"""Products of all samples together, above which a model has fewer of them, and one run."""
_TEXTS, _LENGTH = 96, 12
_ENCODERS = PRESETS["small"].replace(program_depth=1 << 14)
_LARGE = PRESETS["medium"].replace(
    program_depth=1 << 16, mem_addr_width=28, scratchpad_bytes=1 << 22, acc_depth=1 << 14
)
_MANY = 1 << 24
"""Number of the blocks' weights from which on an encoder is tried on the machine `medium`."""
_DECODERS = PRESETS["story"].replace(param_depth=1 << 11, weight_depth=1 << 13)
_SEED = 2


def try_model(path: Path, tokens: int = 0, tokenizer: Path | None = None) -> dict[str, Any]:
    """Run a model on random inputs on the golden machine; return the results as a dictionary.

    - ``path``: the model. ``tokenizer`` is the tokenizer's file of a llama2.c model.
    - ``tokens``: input length of an encoder that accepts any length.

    Key ``cosine`` of the result is the lowest similarity to the float model's outputs. If the model
    is refused, ``refused`` is the reason, and all other values are None.
    """
    # The predicted cycles are an inference's at full length, or a token's at the last position.
    none = dict.fromkeys(("machine", "host", "unused", "tensors", "mismatches", "cosine", "cycles"))
    try:
        if is_text(str(path)):
            return {**none, **_decoder(path, tokenizer, _DECODERS), "refused": None}
        return {**none, **_encoder(path, tokens), "refused": None}
    except InputError as error:
        return {**none, "refused": str(error)}


def _encoder(path: Path, tokens: int) -> dict[str, Any]:
    source = load_source(str(path), tokens)
    model, rng = source.description, np.random.default_rng(_SEED)
    weights = sum(math.prod(shape) for shape in model.shapes().values())
    products = model.sequence * (weights + 2 * model.layers * model.sequence * model.query_width)
    count = max(_FEWEST, min(_SAMPLES, _PRODUCTS // products))
    samples = [source.prepare(source.random(rng)) for _ in range(count)]
    blocks = sum(
        weight.size for name, weight in source.weights.items() if name.startswith("layers.")
    )
    config = _LARGE if blocks >= _MANY else _ENCODERS
    if model.sequence > config.vector.longest_row:
        config = _LARGE.replace(max_row=1 << 13)
    compiled = compile_model(model, source.weights, samples, config, Options(search=False))
    golden = GoldenModel(compiled)
    mismatches, tensors, cosines = 0, 0, []
    for sample in samples[: _RUN if count == _SAMPLES else 1]:
        rows = source.rows(sample)
        wrong, count = differing(compiled, golden.tensors(rows), rows)
        mismatches, tensors = mismatches + len(wrong), tensors + count
        output = np.asarray(source.finish(golden.run(rows)[0], sample))
        cosines.append(cosine(output, np.asarray(source.floats(sample))))
    machine = f"{model.layers} blocks"
    if model.embedding == "linear":
        machine = f"embedding, {machine}"
    if model.classes:
        machine += ", head"
    host = [step.name for step in (*source.before, *source.after)]
    if model.embedding == "tokens":
        host.insert(0, "lookup")
    return {
        "machine": machine,
        "host": ", ".join(host),
        "unused": len(source.unused),
        "tensors": tensors,
        "mismatches": mismatches,
        "cosine": min(cosines),
        "cycles": compiled.expect(compiled.run(), LATENCY).cycles,
    }


def _decoder(path: Path, tokenizer: Path | None, config: Config) -> dict[str, Any]:
    source = load_text(str(path), tokenizer)
    model, rng = source.description, np.random.default_rng(_SEED)
    length = min(_LENGTH, model.positions)
    texts = rng.integers(0, model.vocabulary, (_TEXTS, length)).tolist()
    decoder, _ = source.calibrate(texts, Quantization(length=length))
    program = compile_text(decoder, config, context=length)
    mismatches, tensors, cosines = 0, 0, []
    session = TextSession(program, "golden")
    for _ in range(_RUN):
        numbers = rng.integers(0, model.vocabulary, length)
        session.begin()
        first = session.take(numbers.tolist())
        logits = session.logits()
        mismatches, tensors = mismatches + first.mismatches, tensors + first.tensors
        exact = forward(model, source.weights, numbers[None])["logits"][0, -1]
        cosines.append(cosine(logits * decoder.output.scale, exact))
    return {
        "machine": f"lookup, {model.layers} blocks, head",
        "host": "choice of the token",
        "unused": 0,
        "tensors": tensors,
        "mismatches": mismatches,
        "cosine": min(cosines),
        "cycles": program.expect(program.run(program.cache.capacity - 1), LATENCY).cycles,
    }
