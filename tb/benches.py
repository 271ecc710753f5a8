"""The cocotb benches by unit, each with what it needs for a configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.lib.wiring import Component

from arch.config import Config
from generators.verilog.units import RECIPROCAL_WIDTH, make_unit
from hdl.memory.scratchpad import READERS, WRITERS


@dataclass(frozen=True)
class Bench:
    """A unit's bench: the component's name in ``units`` and the bench's parameters."""

    unit: str
    module: str
    parameters: Callable[[Config, Component], dict[str, Any]]

    def make(self, config: Config) -> tuple[Component, dict[str, Any]]:
        """Return the unit and its bench's parameters."""
        component = make_unit(self.unit, config)
        return component, self.parameters(config, component)


def _rows(config: Config, _unit: Component) -> dict[str, Any]:
    return {"lanes": config.lanes, "max_row": config.max_row}


def _mover(engine: str) -> Callable[[Config, Component], dict[str, Any]]:
    return lambda config, _unit: {
        "engine": engine,
        "config": config.fields(),
        "commands": 30,
        "stall": 0.3,
        "latency": 20,
    }


def _bridge(model: str) -> Callable[[Config, Component], dict[str, Any]]:
    return lambda config, _unit: {
        "config": config.fields(),
        "model": model,
        "bursts": 10,
        "stall": 0.3,
        "errors": 0.6,
    }


def _inverse(*, root: bool) -> Callable[[Config, Component], dict[str, Any]]:
    return lambda _config, unit: {
        "width": RECIPROCAL_WIDTH,
        "root": root,
        "latency": unit.latency,
    }


_STALLED = {"stall": 0.3}

BENCHES = {
    bench.unit: bench
    for bench in (
        Bench("requantizer", "tb.bench_requantize", lambda _c, _u: {"count": 3000} | _STALLED),
        Bench(
            "addnorm",
            "tb.bench_addnorm",
            lambda config, unit: _rows(config, unit) | {"commands": 10, "beats": 60} | _STALLED,
        ),
        Bench("softmax", "tb.bench_softmax", _rows),
        Bench(
            "rotary",
            "tb.bench_rotary",
            lambda config, unit: (
                {"lanes": unit.lanes, "operand_width": config.operand_width}
                | {"commands": 20, "beats": 40}
                | _STALLED
            ),
        ),
        Bench(
            "argmax",
            "tb.bench_argmax",
            lambda config, _u: {"lanes": config.lanes, "rows": 100, "beats": 20} | _STALLED,
        ),
        Bench(
            "table",
            "tb.bench_table",
            lambda config, _u: {"lanes": config.lanes, "slots": config.table_slots},
        ),
        Bench(
            "function_table",
            "tb.bench_function_table",
            lambda config, unit: {
                "lanes": config.lanes,
                "slots": config.table_slots,
                "operand_width": unit.operand_width,
            },
        ),
        Bench("reciprocal", "tb.bench_reciprocal", _inverse(root=False)),
        Bench("rsqrt", "tb.bench_reciprocal", _inverse(root=True)),
        Bench(
            "sparse_unit",
            "tb.bench_sparse",
            lambda config, unit: (
                {
                    "config": config.fields(),
                    "lanes": unit.lanes,
                    "problems": [(2, 40, 9, 0.5), (1, 64, 20, 0.9), (3, 17, 5, 0.0)],
                }
                | _STALLED
            ),
        ),
        Bench(
            "systolic_array",
            "tb.bench_systolic",
            lambda config, unit: {
                "config": config.fields(),
                "cycles": 700,
                "rate": 0.8,
                "latency": unit.latency,
            },
        ),
        Bench(
            "tree_array",
            "tb.bench_systolic",
            lambda config, unit: {
                "config": config.fields() | {"array": "tree"},
                "cycles": 700,
                "rate": 0.8,
                "latency": unit.latency,
            },
        ),
        Bench(
            "weight_decoder",
            "tb.bench_decoder",
            lambda _config, unit: {"config": unit.config.fields(), "matrices": 12} | _STALLED,
        ),
        Bench(
            "matrix_engine",
            "tb.bench_matrix",
            lambda config, _u: {"config": config.fields(), "random": 12} | _STALLED,
        ),
        Bench(
            "scratchpad",
            "tb.bench_scratchpad",
            lambda config, _u: {
                "config": config.fields(),
                "readers": READERS,
                "writers": WRITERS,
                "cycles": 500,
            },
        ),
        Bench("axi4_bridge", "tb.bench_bridge", _bridge("axi4")),
        Bench("wishbone_bridge", "tb.bench_bridge", _bridge("wishbone")),
        Bench("load_engine", "tb.bench_load_store", _mover("load")),
        Bench("store_engine", "tb.bench_load_store", _mover("store")),
        Bench(
            "sequencer",
            "tb.bench_sequencer",
            lambda config, _u: {"config": config.fields(), "programs": 8} | _STALLED,
        ),
        Bench(
            "dispatch",
            "tb.bench_dispatch",
            lambda config, _u: {"config": config.fields(), "commands": 300} | _STALLED,
        ),
        Bench(
            "vector_engine",
            "tb.bench_vector",
            lambda config, _u: {"config": config.fields(), "programs": 2, "steps": 30} | _STALLED,
        ),
        Bench(
            "accelerator",
            "tb.bench_accelerator",
            lambda config, _u: (
                {
                    "config": config.fields(),
                    "programs": 2,
                    "steps": 30,
                    "latency": 10,
                }
                | _STALLED
            ),
        ),
    )
}
"""Every bench that ``celosia test`` can run."""
