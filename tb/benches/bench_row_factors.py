"""Bench of ``celosia.hdl.functions.row_factors``: random rows, random stalls on each stream.

The unit outputs sums of rows, and the RMS norm's factors. Parameters: ``lanes`` and ``max_row`` of
the unit; ``commands``, the number of commands; ``stall``, the probability of a stall in each cycle.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.hdl.functions.addnorm import output_layout, sum_layout
from celosia.hdl.functions.row_factors import RowFactors, factor_layout
from celosia.sim.norm import row_factors
from celosia.tb.benches.bench_addnorm import beats_of, masks_of, payloads_of, random_rows
from celosia.tb.benches.common import StreamDriver, StreamMonitor, parameters, rng, start_clock
from celosia.tb.machine.packing import unpack


class Factors:
    """Monitor of the outputs of ``RowFactors``: the numbers by which the RMS norm scales rows.

    ``factors`` is a list of pairs (cycle, factor). ``ends`` has the cycle of each row's last beat.
    ``together`` is true if the streams ``o`` and ``o_sum`` have always transferred beats in the
    same cycles.
    """

    def __init__(self, dut: Any, lanes: int):
        self.factors: list[tuple[int, dict[str, int]]] = []
        self.ends: list[int] = []
        self.together = True
        self._dut = dut
        self._layout = sum_layout(lanes)
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        dut, cycle = self._dut, 0
        while True:
            await FallingEdge(dut.clk)
            moves = [
                int(getattr(dut, f"{name}__valid").value)
                & int(getattr(dut, f"{name}__ready").value)
                for name in ("o", "o_sum")
            ]
            self.together &= moves[0] == moves[1]
            if moves[0] and unpack(self._layout, int(dut.o_sum__payload.value))["last"]:
                self.ends.append(cycle)
            if int(dut.factor__valid.value):
                bits = int(dut.factor__payload.value)
                self.factors.append((cycle, unpack(factor_layout(), bits)))
            cycle += 1


@cocotb.test()
async def sums_and_factors_are_exact(dut: Any) -> None:
    """The circuit ``RowFactors`` outputs the golden model's sums and row factors.

    The sum of two input rows, or only the first row if ``add`` is 0, leaves on the streams ``o``
    and ``o_sum``. The row factor, by which the RMS norm scales this sum, follows ``latency`` cycles
    after the row's last beat.
    """
    settings, random = parameters(), rng()
    lanes, max_row, stall = settings["lanes"], settings["max_row"], settings["stall"]
    latency = RowFactors(lanes=lanes, max_row=max_row).latency
    await start_clock(dut, rng())
    factors = Factors(dut, lanes)
    driver = StreamDriver(dut, "i", random, stall=stall)
    # A beat is offered only while the other stream accepts it.
    values, sums = (
        StreamMonitor(dut, name, random, stall=stall, stable=False) for name in ("o", "o_sum")
    )
    for _ in range(settings["commands"]):
        n = int(random.choice([1, max_row, random.integers(1, max_row + 1)]))
        m = int(random.integers(1, 4 + 20 * lanes // n))
        add = int(random.integers(2))
        eps = int(random.integers(1 << 56)) >> int(random.integers(57))
        x, r = random_rows(random, m, n), random_rows(random, m, n)
        if random.random() < 0.25:  # rows whose factor is 0 between others
            eps, zero = 0, random.random(m) < 0.5
            x[zero] = r[zero] = 0
        dut.n.value, dut.add.value, dut.eps.value = n, add, eps
        mantissa, right, s = row_factors(x, r if add else None, eps=eps)
        payloads = payloads_of(x, r, lanes)
        cocotb.start_soon(driver.send(payloads))
        copies = cocotb.start_soon(values.receive(len(payloads)))
        beats = [unpack(sum_layout(lanes), bits) for bits in await sums.receive(len(payloads))]
        expected = [
            {"mask": mask, "last": last}
            | {"s": [value if mask >> lane & 1 else 0 for lane, value in enumerate(row.tolist())]}
            for row, mask, last in zip(beats_of(s, lanes), *masks_of(m, n, lanes), strict=True)
        ]
        assert beats == expected, f"n {n}, add {add}"
        for bits, beat in zip(await copies, expected, strict=True):
            copy = unpack(output_layout(lanes), bits)
            assert copy == {"value": beat["s"], "mask": beat["mask"], "last": beat["last"]}
        for _ in range(latency + 1):
            await RisingEdge(dut.clk)
        cycles = [end + latency for end in factors.ends]
        assert [cycle for cycle, _ in factors.factors] == cycles
        # The shift of a factor of 0 does not matter.
        outputs = [
            (factor["mantissa"], factor["right"] if factor["mantissa"] else 0)
            for _, factor in factors.factors
        ]
        shifts = np.where(mantissa > 0, right, 0)
        assert outputs == list(zip(mantissa[:, 0].tolist(), shifts[:, 0].tolist(), strict=True)), (
            f"n {n}, add {add}, eps {eps}"
        )
        factors.factors.clear()
        factors.ends.clear()
    assert factors.together
