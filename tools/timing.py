"""The units' timing diagrams, made from simulations."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth.hdl import Value
from amaranth.lib.wiring import Component
from amaranth.sim import Simulator

from tools.wavejson import diagram, wave

TIMING = Path(__file__).parents[1] / "docs" / "timing"
"""Folder of the diagrams."""


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
    """Inputs that keep one value, by path."""
    patterns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values of inputs from cycle 0 on, by path; the last one stays."""
    meant: Mapping[str, str] = field(default_factory=dict)
    """The bit that makes a signal's value valid if it is 1 (with ``not`` before it if 0), by the
    signal's path. For a stream's payload it is the stream's ``valid``."""
    streams: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Payloads that are sent, each as soon as the previous one is accepted, by the stream's
    path."""


def member(unit: Component, path: str) -> Any:
    """Return a port, or a part of one, by its path, as ``i.payload.q[0]``."""
    part: Any = unit
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        part = getattr(part, name) if name else part[int(index)]
    return part


def simulate(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario's diagram as WaveJSON with its caption."""
    signals = {path: Value.cast(member(scenario.unit, path)) for path in scenario.shown}
    samples: list[Sequence[int]] = []
    simulator = Simulator(scenario.unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(_patterns(scenario, list(signals.values()), samples))
    for path, payloads in scenario.streams.items():
        simulator.add_testbench(_sender(member(scenario.unit, path), payloads), background=True)
    simulator.run()
    shown = {
        path: [value & (1 << len(signal)) - 1 for value in values[scenario.first :]]
        for (path, signal), values in zip(signals.items(), zip(*samples, strict=True), strict=True)
    }
    waves = [
        wave(path, shown[path], len(signal), scenario.shown[path], _meant(scenario, path, shown))
        for path, signal in signals.items()
    ]
    return {**diagram(scenario.length, waves, scenario.first), "caption": scenario.caption}


def _meant(
    scenario: Scenario, path: str, shown: Mapping[str, Sequence[int]]
) -> Sequence[int] | None:
    """Return 1 for each cycle in which a signal's value is valid, or None for all cycles."""
    bit = scenario.meant.get(path, path.partition(".payload")[0] + ".valid")
    if bit.startswith("not "):
        return [1 - value for value in shown[bit.removeprefix("not ")]]
    return shown[bit] if bit != path and bit in shown else None


def _patterns(scenario: Scenario, signals: Sequence[Value], samples: list[Sequence[int]]) -> Any:
    """Return a bench that drives a scenario's inputs and records values before each edge."""

    async def bench(ctx: Any) -> None:
        for path, value in scenario.held.items():
            ctx.set(member(scenario.unit, path), value)
        for cycle in range(scenario.first + scenario.length):
            for path, values in scenario.patterns.items():
                if cycle < len(values):
                    ctx.set(member(scenario.unit, path), values[cycle])
            _clock, _reset, *sample = await ctx.tick().sample(*signals)
            samples.append(sample)

    return bench


def _sender(stream: Any, payloads: Sequence[Any]) -> Any:
    async def bench(ctx: Any) -> None:
        for payload in payloads:
            ctx.set(stream.valid, 1)
            ctx.set(stream.payload, payload)
            await ctx.tick().until(stream.ready)
        ctx.set(stream.valid, 0)

    return bench


def text(waves: Mapping[str, Any]) -> str:
    """Return a diagram as the text of its file."""
    return json.dumps(waves, indent=1) + "\n"
