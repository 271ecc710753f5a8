"""Benchmark of decoder layers that process one token after many earlier tokens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import OPERAND_BITS
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.lower.text_compiler import compile_text, skips_zeros
from celosia.generators.quantize.options import Quantization
from celosia.generators.runtime.interface import Machine
from celosia.sim.report import where
from celosia.tb.models.text_session import TextSession

VOCABULARY = 32
"""Tokens of the model around the layer: its head is small compared with the layer."""
HEAD_DIM = 48
"""Columns of a head, if they divide the layer's width."""
MOST = 4096
"""Largest size of a layer."""


def bench_decode(
    config: Config,
    make_machine: Callable[[Config, int], Machine],
    *,
    dim: int,
    ffn: int,
    positions: int = 128,
    options: Quantization | None = None,
    bits: int = OPERAND_BITS,
    sparsity: float = 0.0,
    recompute: bool = False,
    layers: int = 1,
    seed: int = 1,
) -> dict[str, Any]:
    """Return measurements of a machine that processes one token, a dictionary.

    The model is a Llama-like decoder with random weights.

    - ``make_machine(config, memory_bytes)``: returns the machine.
    - ``positions``: number of tokens before the measured token.
    - ``sparsity``: share of zero weights.
    - ``bits``: number of upper bits read of each weight.
    - ``recompute``: true if the run computes the keys and values of all tokens again.

    Raises :class:`InputError` if the layer does not fit.
    """
    for name, size in (("dim", dim), ("ffn", ffn), ("positions", positions)):
        if not 1 <= size <= MOST:
            raise InputError(f"Size {name} of a layer must be from 1 to {MOST}, not {size}")
    head_dim = HEAD_DIM if dim % HEAD_DIM == 0 else dim
    model = TextDescription(
        name="layer",
        vocabulary=VOCABULARY,
        positions=positions + 1,
        dim=dim,
        layers=layers,
        heads=dim // head_dim,
        kv_heads=dim // head_dim,
        ffn=ffn,
    )
    asked = replace(options or Quantization(), texts=1, length=min(32, positions))
    decoder = untrained(model, asked, seed, sparsity)
    config = config.replace(rotary=True, trace=True)
    program = compile_text(
        decoder,
        config,
        context=positions + 1,
        rows=1,
        sparse=skips_zeros(config),
        recompute=recompute,
    )
    session = TextSession(program, make_machine(config, program.memory_bytes))
    session.length = positions
    session.bits = bits
    turn = session.step(1)
    expected = program.expect(program.run(positions, bits=bits), session.timing.latency)
    # The port transfers at most a word in a cycle, so the words read are the ideal cycles.
    words, cycles = expected.words_read, turn.cycles
    macs = program.macs(positions)
    return {
        "config": config.name,
        "dim": dim,
        "ffn": ffn,
        "positions": positions,
        "bits": bits,
        "sparsity": sparsity,
        "seed": seed,
        "cycles": cycles,
        "predicted_cycles": expected.cycles,
        "ideal_cycles": words,
        "bandwidth_utilization": words / cycles if cycles else None,
        "utilization": macs / (config.elements * cycles) if cycles else None,
        "loaded_bytes": words * config.mem_bytes,
        "slots": program.slots,
        "mismatches": turn.mismatches,
        "tensors": turn.tensors,
        "program_words": len(program.words),
        "where": where(turn.counters) if cycles and config.control.counters else {},
        "counters": dict(turn.counters),
    }
