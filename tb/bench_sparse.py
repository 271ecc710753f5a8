"""Bench of ``SparseMac``: random matrices with random stalls, or without for timing.

Parameters: ``unit``, the arguments of the unit; ``problems``, a list of (n, k, sparsity), which
follow each other without a pause; ``stall``, the probability of a stall on each stream in each
cycle. With ``report``, a file's path, the bench does not compare: it loads the first vector before
it offers a weight and writes what came out (rows of all problems), ``cycles`` from the first beat
of weights taken to the last result taken and ``load_cycles`` for the first vector, as JSON.
"""

import json
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import signed
from cocotb.triggers import FallingEdge
from numpy.typing import NDArray

from hdl.sparse.sparse_lane import SparseShape
from sim.sparse import Beats, compress, multiply
from tb.bench import StreamDriver, StreamMonitor, pack, parameters, rng, start_clock, unpack


def random_problem(
    generator: np.random.Generator, n: int, k: int, sparsity: float, operand_width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return random weights, (n, k), each zero with the given probability, and a vector, (k,)."""
    half = 1 << (operand_width - 1)
    w = generator.integers(-half, half - 1, (n, k))
    w[w >= 0] += 1  # no zero by chance
    w[generator.random((n, k)) < sparsity] = 0
    return w, generator.integers(-half, half, k)


def pack_beats(shape: SparseShape, beats: Beats) -> list[int]:
    """Return a compressed matrix as payloads of the unit's ``i``."""
    return [
        pack(
            shape.beat,
            {
                "row_last": int(beats.row_last[beat]),
                "matrix_last": int(beats.matrix_last[beat]),
                "count": int(beats.count[beat]),
                "base": int(beats.base[beat]),
                "bitmap": int("".join(map(str, beats.bitmap[beat, ::-1])), 2),
                "values": beats.values[beat].tolist(),
            },
        )
        for beat in range(beats.count.size)
    ]


def pack_vector(shape: SparseShape, x: NDArray[np.int64]) -> list[int]:
    """Return a vector as payloads of the unit's ``i_vector``."""
    words = np.pad(x, (0, -x.size % shape.load)).reshape(-1, shape.load).tolist()
    return [
        pack(shape.vector, {"last": int(index == len(words) - 1), "values": word})
        for index, word in enumerate(words)
    ]


async def _watch(dut: Any, name: str, taken: list[int]) -> None:
    """Append the number of each cycle in which a stream moves."""
    valid, ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
    cycle = 0
    while True:
        await FallingEdge(dut.clk)
        if int(valid.value) and int(ready.value):
            taken.append(cycle)
        cycle += 1


@cocotb.test()
async def products_are_exact(dut: Any) -> None:
    """Every row's sum equals the golden model's, in order, whatever stalls."""
    given = parameters()
    generator = rng()
    stall = given.get("stall", 0.0)
    shape = SparseShape(**given["unit"])
    vectors, weights = [], []
    expected: list[int] = []
    for n, k, sparsity in given["problems"]:
        w, x = random_problem(generator, n, k, sparsity, shape.operand_width)
        beats = compress(w, window=shape.window, values=shape.values)
        vectors.append(pack_vector(shape, x))
        weights.extend(pack_beats(shape, beats))
        expected.extend(multiply(beats, x).tolist())

    await start_clock(dut)
    taken: dict[str, list[int]] = {name: [] for name in ("i_vector", "i", "o")}
    for name, cycles in taken.items():
        cocotb.start_soon(_watch(dut, name, cycles))
    vector_driver = StreamDriver(dut, "i_vector", generator, stall=stall)
    weight_driver = StreamDriver(dut, "i", generator, stall=stall)
    monitor = StreamMonitor(dut, "o", generator, stall=stall)
    if "report" in given:
        await vector_driver.send(vectors[0])
        vectors = vectors[1:]
    cocotb.start_soon(vector_driver.send([word for vector in vectors for word in vector]))
    cocotb.start_soon(weight_driver.send(weights))
    sums = [unpack(signed(shape.acc_width), bits) for bits in await monitor.receive(len(expected))]
    if "report" in given:
        report = {
            "sums": sums,
            "cycles": taken["o"][-1] - taken["i"][0] + 1,
            "load_cycles": taken["i_vector"][-1] - taken["i_vector"][0] + 1,
        }
        Path(given["report"]).write_text(json.dumps(report), encoding="utf-8")
    else:
        assert sums == expected
