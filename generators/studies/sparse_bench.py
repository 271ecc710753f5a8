"""Benchmark of a random sparse matrix on the unit that skips zeros, and on the matrix array."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.encoder_compiler import compile_quantized
from celosia.generators.lower.options import Options
from celosia.generators.program.executable import AGAIN
from celosia.generators.runtime.interface import Machine
from celosia.generators.studies.gemm_bench import Gemm, product_model, random_gemm, run_product
from celosia.sim.sparse import encode

MOST_ROWS = 64
"""Most rows for which unit and array are compared."""
LATENCY = 8
"""Latency of external memory in predictions, the same as in benches (cycles)."""


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
    """Run a random sparse layer in the code that the compiler chooses and as a dense matrix.

    The result is a dictionary:

    - ``chosen``: the compiler's choice, "sparse" or "dense".
    - ``cycles``, ``total_cycles``: cycles of the matrix engine and of the run.
    - ``skipped``: number of zero weights skipped.
    - ``array_from_rows``: fewest input rows for which the compiler chooses "dense".
    - Names that begin with ``dense_``: values for the dense matrix.

    Raises :class:`InputError` if the layer does not fit.
    """
    rng = np.random.default_rng(seed)
    gemm = random_gemm(config, rng, m=m, k=k, n=n, sparsity=sparsity)
    if not config.sparse_lanes:
        raise InputError(f"Skipping zero weights needs sparse_lanes, which {config.name} lacks")
    result: dict[str, Any] = {"config": config.name, "lanes": config.sparse_lanes}
    result |= {"m": m, "k": k, "n": n, "sparsity": sparsity, "seed": seed, "mismatches": 0}
    for name, coded in (("", True), ("dense_", False)):
        compiled = _compiled(gemm, config, coded=coded)
        machine = make_machine(config, compiled.memory_bytes)
        outputs, report = run_product(gemm, compiled, machine, AGAIN)
        result |= {
            f"{name}cycles": report.counters.get("span_matrix", 0),
            f"{name}total_cycles": report.cycles,
            f"{name}predicted_cycles": compiled.expect(compiled.run(again=True), LATENCY).cycles,
        }
        result["mismatches"] += int(np.count_nonzero(outputs != gemm.expected))
        if coded:
            result["skipped"] = report.counters.get("skipped", 0)
            result["chosen"] = "sparse" if _sparse(compiled) else "dense"
    products = int(np.count_nonzero(gemm.b))
    size = int(encode(gemm.b, config.sparse_lanes, config.array.cols).size)
    return result | {
        "products": m * products,
        "ideal_cycles": -(-m * products // config.sparse_lanes),
        "bytes": size,
        "dense_bytes": k * n,
        "bits_per_weight": 8 * size / max(1, products),
        "array_from_rows": _line(config, gemm),
    }


def _compiled(gemm: Gemm, config: Config, *, coded: bool) -> Artefact:
    # One instruction for the whole product if it fits, so that no time is hidden by overlap.
    options = Options(sparse=coded, search=False)
    compiled = compile_quantized(product_model(gemm), config, options)
    if not compiled.keeps:
        raise InputError(
            f"The product's weights have no room beside its rows in scratchpad_bytes = "
            f"{config.scratchpad.bytes}, in banks of {config.bank_bytes}"
        )
    return compiled


def _sparse(compiled: Artefact) -> bool:
    return any(instruction.opcode == Opcode.SPARSE for instruction in unpack(compiled.words))


def _line(config: Config, gemm: Gemm) -> int | None:
    """Return the number of rows from which on the compiler chooses the array."""
    for rows in range(1, MOST_ROWS + 1):
        taller = replace(gemm, a=np.zeros((rows, gemm.a.shape[1]), np.int64))
        try:
            compiled = _compiled(taller, config, coded=True)
        except InputError:
            return None
        if not _sparse(compiled):
            return rows
    return None
