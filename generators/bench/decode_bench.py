"""A decoder layer's step with weights streamed from external memory, run and measured."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from generators.bench.decode import compile_decode
from generators.bench.decode_layer import random_layer
from generators.bench.gemm_bench import Machine, check_operands
from generators.quantize.options import INT8
from sim.interpreter import Interpreter
from sim.report import Report

Ints = NDArray[np.int64]


def bench_decode(
    config: Config,
    make_machine: Callable[[Config, int], Machine],
    *,
    dim: int,
    ffn: int,
    batch: int = 1,
    positions: int = 1,
    heads: int = 1,
    weights: str = INT8,
    group: int = 0,
    seed: int = 1,
) -> dict[str, Any]:
    """Run one step of a layer of random weights and return its figures.

    ``make_machine`` takes the configuration and the bytes of external memory that are needed. The
    count begins with nothing on the chip but keys and values of positions before, and ends when the
    last result is in external memory.
    ``ideal_cycles`` is the words that come over the port, ``bandwidth_utilization`` these over
    ``cycles``: the port's peak is a word in every cycle, refresh included. ``mismatches`` counts
    elements of all stored tensors that are not the golden machine's, and is None where that is the
    machine.

    Raises :class:`InputError` where the layer does not fit the configuration.
    """
    if min(dim, ffn, batch) > 0:
        check_operands(config, 5 * dim * dim + 3 * dim * ffn + batch * dim)
    layer = random_layer(
        config,
        np.random.default_rng(seed),
        dim=dim,
        ffn=ffn,
        batch=batch,
        positions=positions,
        heads=heads,
        weights=weights,
        group=group,
    )
    program = compile_decode(layer, config)
    found: list[dict[str, Ints]] = []
    reports: list[Report] = []
    measured = make_machine(config, program.memory_bytes)
    alone = isinstance(measured, Interpreter)
    for machine in (measured,) if alone else (measured, Interpreter(config)):
        machine.write_memory(0, program.image)
        if positions > 1:
            machine.load_program(program.fill)
            machine.start()
        machine.load_program(program.words)
        reports.append(machine.start())
        found.append(
            {
                name: stored.value(machine.read_memory(stored.addr, stored.size))
                for name, stored in program.stored.items()
            }
        )
    report, words = reports[0], program.loaded_words
    macs = batch * sum(weight.size for weight in layer.weights.values())
    macs += 2 * positions * dim if positions > 1 else 0
    return {
        "config": config.name,
        "dim": dim,
        "ffn": ffn,
        "batch": batch,
        "positions": positions,
        "heads": heads,
        "weights": weights,
        "group": group,
        "seed": seed,
        "cycles": report.cycles,
        "ideal_cycles": words,
        "bandwidth_utilization": words / report.cycles if report.cycles else None,
        "utilization": macs / (config.elements * report.cycles) if report.cycles else None,
        "weight_bytes": program.weight_bytes,
        "loaded_bytes": words * config.mem_bytes,
        "mismatches": None
        if alone
        else sum(
            int(np.count_nonzero(found[0][name] != found[1][name])) for name in program.stored
        ),
        "where": report.where,
        "counters": report.counters,
    }
