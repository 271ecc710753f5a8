"""The units' timing diagrams, made from simulations."""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.wiring import Component
from amaranth.sim import Simulator

from tools.wavejson import cycles, diagram, wave

_SCOPE = "bench.top."


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A circuit, a stimulus and the signals that are drawn."""

    unit: Component
    shown: Mapping[str, str]
    """Form of each signal that is drawn (``bit``, ``signed``, ``unsigned``, ``hex``), by path."""
    caption: str
    length: int
    """Cycles that are drawn."""
    first: int = 0
    """The first cycle that is drawn."""
    held: Mapping[str, Any] = field(default_factory=dict)
    """Inputs that stay at one value, by path."""
    patterns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values of inputs from cycle 0 on, by path; the last one stays."""
    meant: Mapping[str, str] = field(default_factory=dict)
    """A bit by whose path a signal's value is drawn where it is 1, ``not`` before it for 0; that of
    a stream's payload is its ``valid``."""
    streams: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Payloads that are sent, one as soon as the one before is taken, by the stream's path."""


def member(unit: Component, path: str) -> Any:
    """Return a port, or a part of one, by its path, as ``i.payload.q[0]``."""
    found: Any = unit
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        found = getattr(found, name) if name else found[int(index)]
    return found


def simulate(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario's diagram as WaveJSON with its caption."""
    m = Module()
    m.submodules.unit = scenario.unit
    copies = {}
    for path in scenario.shown:
        value = Value.cast(member(scenario.unit, path))
        copies[path] = Signal(len(value), name=_identifier(path))
        m.d.comb += copies[path].eq(value)
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(_patterns(scenario))
    for path, payloads in scenario.streams.items():
        simulator.add_testbench(_sender(member(scenario.unit, path), payloads), background=True)
    with tempfile.TemporaryDirectory(prefix="celosia.") as folder:
        path = Path(folder) / "timing.vcd"
        with simulator.write_vcd(str(path)):
            simulator.run()
        names = [_SCOPE + _identifier(shown) for shown in scenario.shown]
        values = cycles(path, f"{_SCOPE}clk", names)
    end = scenario.first + scenario.length
    shown = {
        path: values[_SCOPE + copy.name][scenario.first : end] for path, copy in copies.items()
    }
    waves = [
        wave(path, shown[path], len(copy), scenario.shown[path], _meant(scenario, path, shown))
        for path, copy in copies.items()
    ]
    return {**diagram(scenario.length, waves, scenario.first), "caption": scenario.caption}


def _meant(
    scenario: Scenario, path: str, shown: Mapping[str, Sequence[int]]
) -> Sequence[int] | None:
    """Return 1 for each cycle in which a signal's value means something, or None for all."""
    bit = scenario.meant.get(path, path.partition(".payload")[0] + ".valid")
    if bit.startswith("not "):
        return [1 - value for value in shown[bit.removeprefix("not ")]]
    return shown[bit] if bit != path and bit in shown else None


def _identifier(path: str) -> str:
    return re.sub(r"\W+", "_", path).strip("_")


def _patterns(scenario: Scenario) -> Any:
    async def bench(ctx: Any) -> None:
        for path, value in scenario.held.items():
            ctx.set(member(scenario.unit, path), value)
        for cycle in range(scenario.first + scenario.length + 1):
            for path, values in scenario.patterns.items():
                if cycle < len(values):
                    ctx.set(member(scenario.unit, path), values[cycle])
            await ctx.tick()

    return bench


def _sender(stream: Any, payloads: Sequence[Any]) -> Any:
    async def bench(ctx: Any) -> None:
        for payload in payloads:
            ctx.set(stream.valid, 1)
            ctx.set(stream.payload, payload)
            await ctx.tick().until(stream.ready)
        ctx.set(stream.valid, 0)

    return bench


def text(found: Mapping[str, Any]) -> str:
    """Return a diagram as the text of its file."""
    return json.dumps(found, indent=1) + "\n"
