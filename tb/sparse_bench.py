"""Measures the zero-skip unit of a configuration on one random matrix, on its RTL."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from arch.config import Config
from arch.errors import InputError
from hdl.sparse.sparse import SparseMac
from hdl.sparse.sparse_lane import SparseShape
from sim.sparse import compress, count_cycles, multiply
from tb.bench_sparse import random_problem
from tb.simulate import simulate

MOST_WEIGHTS = 1 << 22
"""Weights of the largest product that a bench simulates."""


def bench_sparse(
    config: Config, k: int, n: int, sparsity: float, simulator: str, seed: int
) -> dict[str, Any]:
    """Multiply a random (n, k) matrix with a vector and return what was measured and compared.

    Each weight is zero with probability ``sparsity``. ``cycles`` are counted from the first beat
    of weights taken to the last result taken, with the vector loaded (the unit loads a vector
    while it uses another); ``load_cycles`` is what loading it alone took. ``products`` are those of
    nonzero weights, ``ideal_cycles`` is ``products / lanes``, rounded up, and ``utilization`` is
    ``products / (lanes * cycles)``. ``predicted_cycles`` is the schedule of ``sim.sparse``,
    ``mismatches`` the number of wrong sums out of ``n``.

    Raises :class:`InputError` where an argument is out of its range or the simulator unknown, and
    :class:`RunError` where the simulation fails.
    """
    shape = SparseShape.from_config(config)
    if not 1 <= k <= shape.k_max:
        raise InputError(f"Sparse k must be from 1 to {shape.k_max} for {config.name}, not {k}")
    if n < 1:
        raise InputError(f"Sparse n must be at least 1, not {n}")
    if n * k > MOST_WEIGHTS:
        raise InputError(f"Sparse n * k must be at most {MOST_WEIGHTS}, not {n * k}")
    if not 0 <= sparsity <= 1:
        raise InputError(f"Sparsity must be from 0 to 1, not {sparsity}")

    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        parameters = {
            "unit": shape.arguments,
            "problems": [(n, k, sparsity)],
            "report": str(report),
        }
        unit = SparseMac.from_config(config)
        simulate(
            unit, bench="tb.bench_sparse", simulator=simulator, seed=seed, parameters=parameters
        )
        measured = json.loads(report.read_text(encoding="utf-8"))

    # The bench draws the same numbers from the same seed.
    w, x = random_problem(np.random.default_rng(seed), n, k, sparsity, shape.operand_width)
    beats = compress(w, window=shape.window, values=shape.values)
    products = int(beats.count.sum())
    return {
        "cycles": measured["cycles"],
        "ideal_cycles": -(-products // shape.lanes),
        "utilization": products / (shape.lanes * measured["cycles"]),
        "mismatches": int((multiply(beats, x) != np.array(measured["sums"])).sum()),
        "products": products,
        "beats": int(beats.count.size),
        "lanes": shape.lanes,
        "load_cycles": measured["load_cycles"],
        "predicted_cycles": count_cycles(beats.count, shape.lanes),
    }
