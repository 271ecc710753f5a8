"""A random sparse matrix times rows of activations, on the zero-skip unit and on the array."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from arch.config import Config
from arch.errors import InputError
from generators.bench.gemm import Gemm, GemmProgram, compile_gemm
from generators.bench.gemm_bench import Machine, expected_result, random_gemm, run_program
from generators.program.predict import predict
from sim.sparse import encode

MOST_ROWS = 64
"""Rows up to which unit and array are compared."""


def bench_sparse(
    config: Config,
    make_machine: Callable[[Config, int], Machine],
    *,
    m: int,
    k: int,
    n: int,
    sparsity: float,
    seed: int = 1,
) -> dict[str, Any]:
    """Run the same random product with SPARSE and with MATMUL, and return the figures of both.

    Operands are in the scratchpad before the run. ``cycles`` and ``dense_cycles`` are those in
    which the matrix engine is at work (counter SPAN_MATRIX), ``total_cycles`` and
    ``dense_total_cycles`` the whole runs with their drains; ``predicted_cycles`` and
    ``dense_predicted_cycles`` are the predictions of these, by which a compiler has ``chosen``.
    ``bytes`` and ``dense_bytes`` are those of the weights, ``bits_per_weight`` those of the code
    for each that is not zero. ``ideal_cycles`` is products over lanes; ``skipped`` counts the
    zeros passed over. ``array_from_rows`` is the number of rows from which on the array is
    predicted to be faster, None where it is not up to :data:`MOST_ROWS`.

    Raises :class:`InputError` where the product does not fit the scratchpad, or the configuration
    has no zero-skip unit.
    """
    rng = np.random.default_rng(seed)
    gemm = random_gemm(config, rng, m=m, k=k, n=n, sparsity=sparsity)
    programs = _programs(gemm, config)
    expected = expected_result(gemm, config)
    result: dict[str, Any] = {"config": config.name, "lanes": config.sparse_lanes}
    result |= {"m": m, "k": k, "n": n, "sparsity": sparsity, "seed": seed, "mismatches": 0}
    for name, program in zip(("", "dense_"), programs, strict=True):
        machine = make_machine(config, program.result_addr + program.result_bytes)
        found, report = run_program(program, machine)
        result |= {
            f"{name}cycles": report.counters.get("span_matrix", 0),
            f"{name}total_cycles": report.cycles,
            f"{name}predicted_cycles": _predicted(program, config),
        }
        result["mismatches"] += int(np.count_nonzero(found != expected))
        if not name:
            result["skipped"] = report.counters.get("skipped", 0)
    products, size = int(np.count_nonzero(gemm.b)), _code_bytes(gemm, config)
    sparse = result["predicted_cycles"] < result["dense_predicted_cycles"]
    return result | {
        "products": m * products,
        "ideal_cycles": -(-m * products // config.sparse_lanes),
        "bytes": size,
        "dense_bytes": k * n,
        "bits_per_weight": 8 * size / max(1, products),
        "chosen": "sparse" if sparse else "dense",
        "array_from_rows": _line(config, gemm),
    }


def _programs(gemm: Gemm, config: Config) -> tuple[GemmProgram, GemmProgram]:
    """Return the program with SPARSE and the one with MATMUL."""
    return compile_gemm(dataclasses.replace(gemm, sparse=True), config), compile_gemm(gemm, config)


def _predicted(program: GemmProgram, config: Config) -> int:
    return predict(program.words, config, start=program.compute_pc).cycles


def _code_bytes(gemm: Gemm, config: Config) -> int:
    return int(encode(gemm.b, config.sparse_lanes, config.cols).size)


def _line(config: Config, gemm: Gemm) -> int | None:
    """Return the rows from which on the array is predicted to be faster."""
    for rows in range(1, MOST_ROWS + 1):
        a = np.zeros((rows, gemm.k), np.int64)
        try:
            found = _programs(dataclasses.replace(gemm, a=a), config)
        except InputError:
            return None
        sparse, dense = (_predicted(program, config) for program in found)
        if dense <= sparse:
            return rows
    return None
