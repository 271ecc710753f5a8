"""Toggle counts of registers, read from waves."""

import re
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from amaranth.lib.wiring import Component
from amaranth.sim import Simulator

Pairs = list[tuple[int, int]]


def count_toggles(circuit: Component, testbench: Callable[[Any], Any]) -> Counter[str]:
    """Return how often each register changes under a testbench, its initial value counted."""
    simulator = Simulator(circuit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    with tempfile.NamedTemporaryFile("r", suffix=".vcd") as waves:
        with simulator.write_vcd(waves.name):
            simulator.run()
        text = waves.read()
    names = dict(re.findall(r"\$var \w+ \d+ (\S+) (\S+)", text))
    return Counter(names[key] for key in re.findall(r"^b[01]+ (\S+)$", text, re.MULTILINE))


def check_gating(
    count: Callable[[Pairs, bool], Counter[str]],
) -> tuple[Counter[str], Counter[str]]:
    """Assert that a gated multiplier's registers stand still where an operand is zero.

    ``count`` multiplies pairs, gated or not, and counts the toggles. Return those at weights that
    are all zero, and at activations that are all zero.
    """
    rng = np.random.default_rng(5)
    pairs = [(int(a), int(b)) for a, b in rng.integers(1, 127, (40, 2))]
    dense = count(pairs, True)
    zero_weights = count([(a, 0) for a, _ in pairs], True)
    zero_activations = count([(0, b) for _, b in pairs], True)
    ungated = count([(0, b) for _, b in pairs], False)
    for register in ("left", "right", "product"):
        assert dense[register] > 30
        assert zero_weights[register] == zero_activations[register] == 1
    assert ungated["right"] > 30
    return zero_weights, zero_activations
