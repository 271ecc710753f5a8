"""Simulation of a component by Amaranth, with one bench."""

from typing import Any

from amaranth.sim import Simulator


def run_bench(component: Any, bench: Any) -> None:
    """Run an asynchronous bench on a component whose clock has a period of 1 us."""
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
