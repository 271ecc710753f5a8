"""Mutation testing of the host link's circuits, and of some circuits inside the vector engine."""

from dataclasses import asdict

from celosia.arch.link import VERSION, Identity
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.functions.row_factors import RowFactors
from celosia.hdl.link.link import Link
from celosia.hdl.link.spi import CYCLES, SpiPeripheral
from celosia.hdl.link.uart import UartReceiver, UartTransmitter
from celosia.hdl.vector.front_ends import FrontEnds
from celosia.hdl.vector.kept_factors import KeptFactors
from celosia.hdl.vector.overlap import Overlap
from celosia.tb.benches.catalog import circuit_bench
from celosia.tb.machine.toolchain import PERIOD_NS

_DIVISOR = 9
_TIMEOUT = 60
_IDENTITY = Identity(version=VERSION, configuration=77, clock=10**7, memory=5000, payload=64)
_ROWS = {"lanes": 2, "max_row": 9}
_FACTORS = {"row_factors": 8, "multiplier_width": 16, "norm": True, "softmax": True}


LINK_BENCHES = {
    "uart_receiver": circuit_bench(
        "bench_uart",
        lambda _config: UartReceiver(_DIVISOR),
        settings={"divisor": _DIVISOR, "count": 20},
        tests=(
            "bytes_are_received",
            "bytes_of_another_clock_are_received",
            "short_start_bits_and_breaks_bring_no_bytes",
        ),
    ),
    "uart_transmitter": circuit_bench(
        "bench_uart",
        lambda _config: UartTransmitter(_DIVISOR),
        settings={"divisor": _DIVISOR, "count": 20},
        tests=("bytes_are_sent", "bytes_are_heard_by_another_clock"),
    ),
    "spi": circuit_bench(
        "bench_spi",
        lambda _config: SpiPeripheral(),
        settings={
            **{"transfers": 60, "stall": 0.3, "half_ns": CYCLES // 2 * PERIOD_NS},
            **{"wire_ns": 9, "setup_ns": 11},
        },
        tests=("bytes_pass_both_ways",),
    ),
    "link": circuit_bench(
        "bench_link",
        lambda config: Link(
            config.memory,
            program_depth=config.control.program_depth,
            identity=_IDENTITY,
            timeout=_TIMEOUT,
        ),
        changes={"program_depth": 100},
        settings={
            **{"identity": asdict(_IDENTITY), "timeout": _TIMEOUT, "requests": 100},
            **{"stall": 0.3, "latency": 10},
        },
        mutants={"long": [2100, 4200]},
    ),
    "kept_factors": circuit_bench(
        "bench_kept_factors",
        lambda config: KeptFactors(
            rows=config.row_factors, norm=config.vector.norm, softmax=config.softmax is not None
        ),
        changes=_FACTORS,
        settings={"commands": 200},
    ),
    "overlap": circuit_bench(
        "bench_overlap",
        lambda config: Overlap(stages=config.stages, fused=config.fused is not None),
        changes={"fused": True},
        settings={"commands": 300},
    ),
    "row_factors": circuit_bench(
        "bench_row_factors",
        lambda _config: RowFactors(**_ROWS),
        settings={**_ROWS, "commands": 40, "stall": 0.3},
    ),
    "front_ends": circuit_bench(
        "bench_front_ends",
        lambda config: FrontEnds(config.part(VectorConfig)),
        changes={"fused": True, "norm": True, "softmax": True},
        settings={"commands": 160, "stall": 0.3},
        inner=("softmax.softmax", "norm.addnorm"),
    ),
}
"""Every such bench, by its circuit's name."""
