"""The elementwise unit: published vectors through it and the requantizer, both simulators."""

import re
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

from hdl.arithmetic.requantize import Requantizer
from hdl.functions.elementwise import ElementwiseLane, ElementwiseUnit
from tb.simulate import simulate

VECTORS = Path(__file__).parent / "data" / "tflite"


def run_case(i, r, command, output):
    """Return the INT8 outputs of a lane with the requantizer behind it."""
    m = Module()
    m.submodules.lane = lane = ElementwiseLane()
    m.submodules.requantizer = requantizer = Requantizer()
    m.d.comb += requantizer.x.eq(lane.value)
    latency = lane.latency + requantizer.latency
    results = []

    async def bench(ctx):
        ports = {lane: {"en": 1, **command}, requantizer: {"en": 1, **output}}
        for component, values in ports.items():
            for name, value in values.items():
                ctx.set(getattr(component, name), int(value))
        for cycle in range(len(i) + latency):
            if cycle < len(i):
                ctx.set(lane.i, int(i[cycle]))
                ctx.set(lane.r, int(r[cycle]))
            if cycle >= latency:
                results.append(ctx.get(requantizer.y))
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return np.array(results)


@pytest.mark.parametrize("name", ["add", "mul"])
def test_equals_tflite(name):
    path = VECTORS / f"{name}.npz"
    with np.load(path) as arrays:
        v = dict(arrays)
    command = {
        "multiply": name == "mul",
        "i_zero": v["a_zero_point"],
        "r_zero": v["b_zero_point"],
        "i_multiplier": v.get("a_multiplier", 0),
        "i_shift": v.get("a_shift", 0),
        "r_multiplier": v.get("b_multiplier", 0),
        "r_shift": v.get("b_shift", 0),
    }
    output = {
        "multiplier": v["multiplier"],
        "shift": v["shift"],
        "zero": v["y_zero_point"],
        "low": -128,
        "high": 127,
    }
    np.testing.assert_array_equal(run_case(v["a"], v["b"], command, output), v["y"])


@pytest.mark.parametrize(("simulator", "lanes"), [("verilator", 5), ("icarus", 1)])
def test_bench(simulator, lanes):
    parameters = {"lanes": lanes, "commands": 40, "beats": 30, "stall": 0.3}
    simulate(
        ElementwiseUnit(lanes=lanes),
        bench="tb.bench_elementwise",
        simulator=simulator,
        seed=lanes,
        parameters=parameters,
    )


def test_one_beat_a_cycle():
    """Without stalls a beat goes in and comes out in every cycle."""
    unit = ElementwiseUnit(lanes=2)
    moved = {"i": 0, "o": 0}

    async def bench(ctx):
        ctx.set(unit.i.valid, 1)
        ctx.set(unit.o.ready, 1)
        for _ in range(50):
            for name, port in (("i", unit.i), ("o", unit.o)):
                moved[name] += ctx.get(port.valid) & ctx.get(port.ready)
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert moved == {"i": 50, "o": 50 - ElementwiseLane.latency}


def test_refuses_lanes():
    message = "Elementwise lanes must be a positive integer, not 0"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ElementwiseUnit(lanes=0)
