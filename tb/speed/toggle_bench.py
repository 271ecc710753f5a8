"""Benchmark that counts register toggles with and without the configuration's field ``sleep``.

If the field is true, unused registers keep their values.
"""

from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError, RunError
from celosia.generators.lower.encoder_compiler import compile_quantized
from celosia.generators.lower.options import Options
from celosia.generators.studies.gemm_bench import product_model, random_gemm
from celosia.tb.machine.memory_timing import SDRAM
from celosia.tb.verify.faults.faulty_machine import FaultMachine

UNITS = ("matrix", "vector", "accumulators")
"""Units that process a product's numbers, and whose parts sleep."""


def bench_toggles(config: Config, *, m: int, k: int, n: int, seed: int = 1) -> dict[str, Any]:
    """Return the register toggles of a linear layer [m, k] x [k, n] without and with ``sleep``.

    The result is a dictionary. Its key ``units`` has a dictionary for each unit, one for the
    engines together (``engines``), and one for the whole machine (``all``). There, ``awake`` is the
    number of toggles without ``sleep``, and ``asleep`` with it. Raises :class:`InputError` if the
    layer does not fit, or the configuration is microcoded.
    """
    if config.micro is not None:
        raise InputError(f"Sleep is for engines, which {config.name}, microcoded, lacks")
    gemm = random_gemm(config, np.random.default_rng(seed), m=m, k=k, n=n)
    counts, cycles, mismatches = [], [], 0
    for sleep in (False, True):
        chosen = config.replace(sleep=sleep)
        compiled = compile_quantized(product_model(gemm), chosen, Options())
        size = 1 << (compiled.memory_bytes - 1).bit_length()
        machine = FaultMachine(chosen, memory_bytes=size, **SDRAM.fields())
        machine.write_memory(0, compiled.image.tobytes())
        machine.write_memory(compiled.input_addr, gemm.a.astype(np.int8).tobytes())
        machine.load_program(compiled.words)
        counts.append(machine.count_toggles())
        cycles.append(machine.cycles)
        data = machine.read_memory(compiled.output_addr, compiled.output_count)
        integers = compiled.output_integers(data)
        mismatches += int(np.count_nonzero(integers != gemm.expected))
        machine.close()
    if set(counts[0]) != set(counts[1]):
        raise RunError("Sleep must leave the units of a machine as they are")
    rows = [
        {"unit": unit, **_compared(counts[0][unit], counts[1][unit])} for unit in sorted(counts[0])
    ]
    engines = [sum(count[unit] for unit in UNITS) for count in counts]
    rows.append({"unit": "engines", **_compared(*engines)})
    rows.append({"unit": "all", **_compared(*(count.total() for count in counts))})
    return {
        "config": config.name,
        "m": m,
        "k": k,
        "n": n,
        "seed": seed,
        "cycles_awake": cycles[0],
        "cycles_asleep": cycles[1],
        "mismatches": mismatches,
        "units": rows,
    }


def _compared(awake: int, asleep: int) -> dict[str, float]:
    fewer = 1 - asleep / awake if awake else 0.0
    return {"awake": awake, "asleep": asleep, "fewer": round(fewer, 4)}
