"""Benchmark of random matrix products on a machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.quantized import QuantizedModel
from celosia.generators.graph.tensors import Rescale, Tensor
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.encoder_compiler import compile_quantized
from celosia.generators.lower.options import Options
from celosia.generators.program.executable import ENCODE
from celosia.generators.runtime.interface import Machine
from celosia.generators.studies.gemm_shapes import Shape
from celosia.sim.report import Report
from celosia.sim.requantize import quantize_multiplier, requantize

Ints = NDArray[np.int64]

SHAPE_FIGURES = (
    "m",
    "k",
    "n",
    "cycles",
    "total_cycles",
    "ideal_cycles",
    "utilization",
    "total_utilization",
    "mismatches",
)
"""Fields reported for each of many products."""


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """An INT8 matrix product C = requantize((A - a_zero) B) with its operands.

    ``a`` is [m, k], ``b`` is [k, n]; ``bias``, ``multiplier`` and ``shift`` are [n]. See equation
    (1) of ``docs/numerics.md``.
    """

    a: Ints
    b: Ints
    bias: Ints
    multiplier: Ints
    shift: Ints
    a_zero: int = 0
    o_zero: int = 0

    @property
    def expected(self) -> Ints:
        """The exact result C [m, n], computed by NumPy."""
        a = self.a - self.a_zero  # [m, k]
        # Exact below 2**53.
        sums = (a.astype(np.float64) @ self.b.astype(np.float64)).astype(np.int64)
        rescaled = requantize(sums, self.bias, self.multiplier, self.shift, self.o_zero, -128, 127)
        return np.asarray(rescaled, np.int64)


def random_gemm(
    config: Config,
    rng: np.random.Generator,
    *,
    m: int,
    k: int,
    n: int,
    sparsity: float | None = None,
) -> Gemm:
    """Return a matrix product with random operands A and B over the whole operand range.

    ``sparsity`` is the fraction of B's elements that are 0. If it is None, zeros are as frequent as
    other values. Raises :class:`InputError` if an argument is out of range or the product does not
    fit.
    """
    for name, size in (("m", m), ("k", k), ("n", n)):
        if size < 1:
            raise InputError(f"Size {name} of a product must be positive, not {size}")
    if k > config.accumulators.longest_sum:
        raise InputError(
            f"A sum of k = {k} products could overflow the accumulator: max_k is "
            f"{config.accumulators.longest_sum}"
        )
    check_memory_size(config, m * k + k * n + m * n)
    if sparsity is not None and not 0 <= sparsity <= 1:
        raise InputError(f"Sparsity must be from 0 to 1, not {sparsity}")
    low, high = config.operand_min, config.operand_max + 1
    a_zero = int(rng.integers(low, high)) if config.array.zero_points else 0
    a, b = rng.integers(low, high, (m, k)), rng.integers(low, high, (k, n))
    if sparsity is not None:
        b[b == 0] = 1
        b.ravel()[rng.permutation(k * n)[: round(sparsity * k * n)]] = 0
    spread = float(high * high) * np.sqrt(k) / 2
    scales = [quantize_multiplier(high / spread * rng.uniform(0.5, 1)) for _ in range(n)]
    return Gemm(
        a=a,
        b=b,
        bias=rng.integers(-int(spread), int(spread) + 1, n),
        multiplier=np.array([multiplier for multiplier, _ in scales], np.int64),
        shift=np.array([shift for _, shift in scales], np.int64),
        a_zero=a_zero,
        o_zero=int(rng.integers(low, high)),
    )


def check_memory_size(config: Config, count: int) -> None:
    """Raise :class:`InputError` if ``count`` bytes of operands do not fit in external memory."""
    if count > 1 << config.memory.addr_width:
        raise InputError(
            f"The operands are {count} bytes, but mem_addr_width = {config.memory.addr_width} bits "
            f"address {1 << config.memory.addr_width}"
        )


def product_model(gemm: Gemm) -> QuantizedModel:
    """Return a quantized model that computes the matrix product ``gemm``.

    The model is a single linear layer. Its input is A, its weights are B, and its output is C.
    """
    (m, k), n = gemm.a.shape, gemm.b.shape[1]
    description = ModelDescription(
        name="product",
        tokens=m,
        features=k,
        dim=n,
        layers=1,
        heads=1,
        ffn=1,
        norm="none",
        final_norm=False,
    )
    source = Tensor("a", "input", m, k, 1.0, gemm.a_zero)
    target = Tensor("c", "output", m, n, 1.0, gemm.o_zero)
    product = Linear(source, target, gemm.b, Rescale(gemm.bias, gemm.multiplier, gemm.shift))
    return QuantizedModel(
        description=description,
        input=source,
        output=target,
        stream=Tensor("stream", "stream", m, n, 1.0),
        start=None,
        before=(),
        layers=((product,),),
        after=(),
    )


def run_product(
    gemm: Gemm, compiled: Artefact, machine: Machine, entry: str = ENCODE
) -> tuple[Ints, Report]:
    """Run a compiled matrix product; return the result C [m, n], and the machine's report.

    ``gemm`` has the operand A; ``compiled`` has the program and the operand B. If ``entry`` is not
    ``encode``, the machine runs the entry point ``encode`` first, and the report is that of
    ``entry``.
    """
    machine.write_memory(0, compiled.image.tobytes())
    machine.write_memory(compiled.input_addr, gemm.a.astype(np.int8).tobytes())
    machine.load_program(compiled.words)
    report = machine.start()
    if entry != ENCODE:
        report = machine.start(compiled.entries[entry].pc)
    data = machine.read_memory(compiled.output_addr, compiled.output_count)
    return compiled.output_integers(data), report


def _share(report: Report, config: Config, cycles: int) -> float | None:
    """Return the products computed divided by those possible in some cycles; None without clock."""
    return report.counters["macs"] / (config.elements * cycles) if cycles else None


def bench_gemm(
    config: Config,
    make_machine: Callable[[Config, int], Machine],
    *,
    m: int,
    k: int,
    n: int,
    seed: int = 1,
) -> dict[str, Any]:
    """Run a random matrix product [m, k] x [k, n]; return a dictionary with measurements.

    - ``cycles``: cycles from the matrix engine's first tile to its last sum.
    - ``total_cycles``: cycles of the whole run.
    - ``ideal_cycles``: multiply-accumulates divided by array elements.
    - ``utilization``: mean fraction of array elements that work in ``cycles``.
    - ``mismatches``: number of wrong elements.

    Raises :class:`InputError` if the product does not fit, or there are no counters.
    """
    if not config.control.counters:
        raise InputError(
            f"Products are timed by counters of the matrix engine, which {config.name} lacks"
        )
    gemm = random_gemm(config, np.random.default_rng(seed), m=m, k=k, n=n)
    compiled = compile_quantized(product_model(gemm), config, Options())
    outputs, report = run_product(gemm, compiled, make_machine(config, compiled.memory_bytes))
    cycles = report.counters.get("span_matrix", 0)
    return {
        "config": config.name,
        "m": m,
        "k": k,
        "n": n,
        "seed": seed,
        "cycles": cycles,
        "total_cycles": report.cycles,
        "ideal_cycles": -(-m * k * n // config.elements),
        "utilization": _share(report, config, cycles),
        "total_utilization": _share(report, config, report.cycles),
        "mismatches": int(np.count_nonzero(outputs != gemm.expected)),
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
    """Run a random matrix product of each shape; return a dictionary with all measurements.

    The entry ``shapes`` has the main measurements of :func:`bench_gemm` for each shape. Other
    entries are the lowest utilizations of all shapes, and the total number of mismatches.
    ``update(done, total)`` is called with numbers of shapes.
    """
    measured_shapes = []
    for done, shape in enumerate(shapes):
        update(done, len(shapes))
        result = bench_gemm(
            config,
            make_machine,
            m=shape.m,
            k=shape.k,
            n=shape.n,
            seed=seed,
        )
        measured_shapes.append(
            {"name": shape.name} | {name: result[name] for name in SHAPE_FIGURES}
        )
    measured = [result for result in measured_shapes if result["utilization"] is not None]
    return {
        "config": config.name,
        "seed": seed,
        "lowest_utilization": min((r["utilization"] for r in measured), default=None),
        "lowest_total_utilization": min((r["total_utilization"] for r in measured), default=None),
        "mismatches": sum(result["mismatches"] for result in measured_shapes),
        "shapes": measured_shapes,
    }
