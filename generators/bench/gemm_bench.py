"""A random matrix product, run on a machine and measured."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.errors import InputError
from arch.micro.config import MicroConfig
from generators.bench.gemm import Gemm, GemmProgram, TooLargeError, compile_gemm
from generators.bench.gemm_shapes import Shape
from generators.bench.gemm_stream import compile_stream
from sim.report import Report
from sim.requantize import quantize_multiplier, requantize

Ints = NDArray[np.int64]

SHAPE_FIGURES = (
    "m",
    "k",
    "n",
    "b_transpose",
    "streamed",
    "cycles",
    "total_cycles",
    "ideal_cycles",
    "utilization",
    "total_utilization",
    "mismatches",
)
"""Fields that are reported of each of many products."""


class Machine(Protocol):
    """Interface of a machine that runs programs: the golden one, a simulated circuit, a board."""

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory."""

    def read_memory(self, addr: int, count: int) -> bytes:
        """Return bytes of external memory."""

    def load_program(self, words: Sequence[int]) -> None:
        """Load a program's words."""

    def start(self, pc: int = 0) -> Report:
        """Run from a word address to HALT."""


def random_gemm(
    config: Config,
    rng: np.random.Generator,
    *,
    m: int,
    k: int,
    n: int,
    b_transpose: bool = False,
    sparsity: float | None = None,
) -> Gemm:
    """Return a product of random operands over their whole range.

    With ``sparsity`` B has no zero point, and that share of its elements, rounded, is 0.

    Raises :class:`InputError` where a size is not positive or the share is not from 0 to 1.
    """
    for name, size in (("m", m), ("k", k), ("n", n)):
        if size < 1:
            raise InputError(f"Size {name} of a product must be positive, not {size}")
    if k > config.max_k:
        raise InputError(
            f"A sum of k = {k} products could overflow the accumulator: max_k is {config.max_k}"
        )
    check_operands(config, m * k + k * n + m * n)
    if sparsity is not None and not 0 <= sparsity <= 1:
        raise InputError(f"Sparsity must be from 0 to 1, not {sparsity}")
    low, high = config.operand_min, config.operand_max + 1
    a_zero, b_zero = (
        (int(rng.integers(low, high)), int(rng.integers(low, high)))
        if config.zero_points
        else (0, 0)
    )
    a, b = rng.integers(low, high, (m, k)), rng.integers(low, high, (k, n))
    if sparsity is not None:
        b_zero = 0
        b[b == 0] = 1
        b.ravel()[rng.permutation(k * n)[: round(sparsity * k * n)]] = 0
    spread = float(high * high) * np.sqrt(k) / 2
    scales = [quantize_multiplier(high / spread * rng.uniform(0.5, 1)) for _ in range(n)]
    return Gemm(
        a=a,
        b=b.T if b_transpose else b,
        bias=rng.integers(-int(spread), int(spread) + 1, n),
        multiplier=np.array([multiplier for multiplier, _ in scales], np.int64),
        shift=np.array([shift for _, shift in scales], np.int64),
        a_zero=a_zero,
        b_zero=b_zero,
        o_zero=int(rng.integers(low, high)),
        b_transpose=b_transpose,
    )


def check_operands(config: Config, count: int) -> None:
    """Raise :class:`InputError` where operands of one byte each do not fit external memory."""
    if count > 1 << config.mem_addr_width:
        raise InputError(
            f"The operands are {count} bytes, but mem_addr_width = {config.mem_addr_width} bits "
            f"address {1 << config.mem_addr_width}"
        )


def expected_result(gemm: Gemm, config: Config) -> Ints:
    """Return C [m, n] by plain NumPy."""
    a = gemm.a - gemm.a_zero  # [m, k]
    b = (gemm.b.T if gemm.b_transpose else gemm.b) - gemm.b_zero  # [k, n]
    sums = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)  # exact below 2**53
    bounds = (config.operand_min, config.operand_max)
    found = requantize(sums, gemm.bias, gemm.multiplier, gemm.shift, gemm.o_zero, *bounds)
    return np.asarray(found, np.int64)


def compile_product(gemm: Gemm, config: Config) -> GemmProgram:
    """Return the program of a product in the scratchpad or, where it is too large, streamed.

    Raises :class:`InputError` where neither fits the configuration.
    """
    try:
        return compile_gemm(gemm, config)
    except TooLargeError:
        if gemm.sparse:
            raise
        return compile_stream(gemm, config)


def run_gemm(gemm: Gemm, config: Config, machine: Machine) -> tuple[Ints, Report]:
    """Return C [m, n] as a machine computes it, and the report of the computing alone."""
    return run_program(compile_product(gemm, config), machine)


def run_program(program: GemmProgram, machine: Machine) -> tuple[Ints, Report]:
    """Return C [m, n] as a machine computes it, and the report of the computing alone."""
    machine.write_memory(0, program.image)
    machine.load_program(program.words)
    if program.load_pc is not None:
        machine.start(program.load_pc)
    report = machine.start(program.compute_pc)
    if program.store_pc is not None:
        machine.start(program.store_pc)
    return program.result(machine.read_memory(program.result_addr, program.result_bytes)), report


def _share(report: Report, config: Config, cycles: int) -> float | None:
    """Return the products computed over those that fit into some cycles, if there is a clock."""
    return report.counters["macs"] / (config.elements * cycles) if cycles else None


def bench_gemm(
    config: Config,
    make_machine: Callable[[Config, int], Machine],
    *,
    m: int,
    k: int,
    n: int,
    b_transpose: bool = False,
    seed: int = 1,
) -> dict[str, Any]:
    """Run a random product and return its figures.

    ``make_machine`` takes the configuration and the bytes of external memory that are needed.
    Operands and parameters are in the scratchpad before the run, if they fit; if not,
    ``streamed`` says that they are in external memory before, and the result after it.

    ``cycles`` is the window in which the matrix engine is at work, pauses included: from its first
    request for an operand until the last sum has been written to the accumulators (counter
    SPAN_MATRIX). ``total_cycles`` is the whole run, from start to halt: before the window the fetch
    of instructions and, streamed, the load of the first operands; after it the drain of the last
    sums, until the requantized result is in the scratchpad or, streamed, in external memory.

    ``ideal_cycles`` is m * k * n over the elements; ``utilization`` and ``total_utilization`` are
    the products that were computed over elements times cycles and total cycles.

    Raises :class:`InputError` where the product does not fit the configuration, or that is
    microcoded and counts no window.
    """
    if isinstance(config, MicroConfig):
        raise InputError(
            f"Products are timed by what the matrix engine counts, which {config.name}, "
            f"microcoded, lacks"
        )
    rng = np.random.default_rng(seed)
    gemm = random_gemm(
        config,
        rng,
        m=m,
        k=k,
        n=n,
        b_transpose=b_transpose,
    )
    program = compile_product(gemm, config)
    machine = make_machine(config, program.result_addr + program.result_bytes)
    found, report = run_program(program, machine)
    cycles = report.counters.get("span_matrix", 0)
    return {
        "config": config.name,
        "m": m,
        "k": k,
        "n": n,
        "b_transpose": b_transpose,
        "streamed": program.load_pc is None,
        "seed": seed,
        "cycles": cycles,
        "total_cycles": report.cycles,
        "ideal_cycles": -(-m * k * n // config.elements),
        "utilization": _share(report, config, cycles),
        "total_utilization": _share(report, config, report.cycles),
        "mismatches": int(np.count_nonzero(found != expected_result(gemm, config))),
        "where": report.where,
        "counters": report.counters,
    }


def bench_shapes(
    config: Config,
    make_machine: Callable[[Config, int], Machine],
    shapes: Sequence[Shape],
    *,
    seed: int = 1,
    update: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """Run products of some shapes, and return what :func:`bench_gemm` says of each, by its name.

    ``update`` is called with the number of shapes done and of all.
    """
    found = []
    for done, shape in enumerate(shapes):
        update(done, len(shapes))
        result = bench_gemm(
            config,
            make_machine,
            m=shape.m,
            k=shape.k,
            n=shape.n,
            b_transpose=shape.b_transpose,
            seed=seed,
        )
        found.append({"name": shape.name} | {name: result[name] for name in SHAPE_FIGURES})
    measured = [result for result in found if result["utilization"] is not None]
    return {
        "config": config.name,
        "seed": seed,
        "lowest_utilization": min((r["utilization"] for r in measured), default=None),
        "lowest_total_utilization": min((r["total_utilization"] for r in measured), default=None),
        "mismatches": sum(result["mismatches"] for result in found),
        "shapes": found,
    }
