"""Mutation testing of the host link's circuits, and of parts of the vector engine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from amaranth.lib.wiring import Component

from celosia.arch.config import Config
from celosia.arch.link import VERSION, Identity
from celosia.hdl.functions.row_factors import RowFactors
from celosia.hdl.link.link import Link
from celosia.hdl.link.spi import CYCLES, SpiPeripheral
from celosia.hdl.link.uart import UartReceiver, UartTransmitter
from celosia.hdl.vector.front_ends import FrontEnds
from celosia.hdl.vector.kept_factors import KeptFactors
from celosia.hdl.vector.overlap import Overlap
from celosia.tb.machine.toolchain import PERIOD_NS

_DIVISOR = 9
_TIMEOUT = 60
_IDENTITY = Identity(version=VERSION, configuration=77, clock=10**7, memory=5000, payload=64)
_ROWS = {"lanes": 2, "max_row": 9}
_FACTORS = {"row_factors": 8, "multiplier_width": 16, "norm": True, "softmax": True}


@dataclass(frozen=True, kw_only=True)
class LinkBench:
    """Bench of a circuit of the host link or the vector engine.

    A campaign uses it in place of a :class:`celosia.tb.benches.catalog.Bench`. ``component`` is a
    function that returns the circuit for a configuration. ``module``, ``settings``, ``mutants`` and
    ``inner`` have the same meaning as in ``Bench``.
    """

    module: str
    component: Callable[[Config], Component]
    settings: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of the configuration that the circuit needs."""
    tests: Sequence[str] | None = None
    """Names of the module's tests that apply to the circuit; all of them if None."""
    mutants: Mapping[str, Any] = field(default_factory=dict)
    inner: Sequence[str] = ()

    def make(self, config: Config) -> tuple[Component, dict[str, Any]]:
        """Return the circuit for ``config``, and a dictionary of the bench's parameters."""
        own = config.replace(**self.changes)
        return self.component(own), {**self.settings, "config": own.fields()}


LINK_BENCHES = {
    "uart_receiver": LinkBench(
        module="celosia.tb.benches.bench_uart",
        component=lambda _config: UartReceiver(_DIVISOR),
        settings={"divisor": _DIVISOR, "count": 20},
        tests=(
            "bytes_are_received",
            "bytes_of_another_clock_are_received",
            "short_start_bits_and_breaks_bring_no_bytes",
        ),
    ),
    "uart_transmitter": LinkBench(
        module="celosia.tb.benches.bench_uart",
        component=lambda _config: UartTransmitter(_DIVISOR),
        settings={"divisor": _DIVISOR, "count": 20},
        tests=("bytes_are_sent", "bytes_are_heard_by_another_clock"),
    ),
    "spi": LinkBench(
        module="celosia.tb.benches.bench_spi",
        component=lambda _config: SpiPeripheral(),
        settings={
            **{"transfers": 60, "stall": 0.3, "half_ns": CYCLES // 2 * PERIOD_NS},
            **{"wire_ns": 9, "setup_ns": 11},
        },
        tests=("bytes_pass_both_ways",),
    ),
    "link": LinkBench(
        module="celosia.tb.benches.bench_link",
        component=lambda config: Link(
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
    "kept_factors": LinkBench(
        module="celosia.tb.benches.bench_kept_factors",
        component=lambda config: KeptFactors(
            rows=config.row_factors, norm=config.vector.norm, softmax=config.softmax is not None
        ),
        changes=_FACTORS,
        settings={"commands": 200},
    ),
    "overlap": LinkBench(
        module="celosia.tb.benches.bench_overlap",
        component=lambda config: Overlap(stages=config.stages, fused=config.fused is not None),
        changes={"fused": True},
        settings={"commands": 300},
    ),
    "row_factors": LinkBench(
        module="celosia.tb.benches.bench_row_factors",
        component=lambda _config: RowFactors(**_ROWS),
        settings={**_ROWS, "commands": 40, "stall": 0.3},
    ),
    "front_ends": LinkBench(
        module="celosia.tb.benches.bench_front_ends",
        component=FrontEnds,
        changes={"fused": True, "norm": True, "softmax": True},
        settings={"commands": 160, "stall": 0.3},
        inner=("softmax.softmax", "norm.addnorm"),
    ),
}
"""Every such bench, by its circuit's name."""
