"""Bench of ``celosia.hdl.functions.addnorm``: random commands, random stalls on every stream.

The unit adds rows and normalizes the sums.
"""

# Parameters:
# - lanes, max_row: the unit's lanes, and its longest row (elements)
# - commands: the number of commands
# - beats: a command has at most ``1 + beats * lanes / n`` rows of n elements
# - stall: the probability of a stall on each stream in each cycle
# - n (optional): the length of all rows, by default random
# - latency (optional): the unit's latency in cycles, by default not checked

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time
from numpy.typing import NDArray

from celosia.hdl.functions.addnorm import input_layout, output_layout, sum_layout
from celosia.sim.norm import normalize
from celosia.tb.benches.common import StreamDriver, StreamMonitor, parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack
from celosia.tb.machine.toolchain import PERIOD_NS

Rows = NDArray[np.int64]


def random_rows(generator: np.random.Generator, m: int, n: int) -> Rows:
    """Return random INT16 rows [m, n]: small, constant, nearly constant, extreme or any values."""
    rows = generator.integers(-(1 << 15), 1 << 15, (m, n))
    for row in rows:
        kind = generator.integers(6)
        if kind == 0:
            row >>= generator.integers(1, 16)
        elif kind == 1:
            row[:] = row[0]
        elif kind == 2:
            row[:] = np.clip(row[0] + (row >> 14), -(1 << 15), (1 << 15) - 1)
        elif kind == 3:
            row[:] = np.where(row < 0, -(1 << 15), (1 << 15) - 1)
        elif kind == 4:
            row[:] = -(1 << 15)
    return rows


def beats_of(rows: Rows, lanes: int) -> Rows:
    """Split rows [m, n] into beats of ``lanes`` elements, and return all beats.

    The result has the shape [m * ceil(n / lanes), lanes]. If a row's last beat is incomplete, it is
    padded with the value 77.
    """
    padding = -rows.shape[1] % lanes
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    return padded.reshape(-1, lanes)


def masks_of(m: int, n: int, lanes: int) -> tuple[list[int], list[int]]:
    """Return two lists with one entry per beat, for m rows of n elements.

    The first list has the mask of each beat: bit i is 1 if lane i has an element of the row. The
    second list has ``last`` of each beat: 1 if the beat is the last one of its row, otherwise 0.
    """
    beats = -(-n // lanes)
    masks = [(1 << lanes) - 1] * (beats - 1) + [(1 << (n - lanes * (beats - 1))) - 1]
    return masks * m, ([0] * (beats - 1) + [1]) * m


def payloads_of(x: Rows, r: Rows, lanes: int) -> list[int]:
    """Return the payloads of the stream ``i``, one per beat, for the rows ``x`` and ``r``.

    Each payload is an integer that has, for each lane, an element of ``x`` and the element of ``r``
    at the same position. The unit ignores ``r`` if its input ``add`` is 0.
    """
    beats = zip(beats_of(x, lanes), beats_of(r, lanes), *masks_of(*x.shape, lanes), strict=True)
    return [
        pack(input_layout(lanes), {"x": a.tolist(), "r": b.tolist(), "mask": c, "last": d})
        for a, b, c, d in beats
    ]


def _hide(beat: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a beat with 0 in the lanes outside of the mask."""
    kept = [value if beat["mask"] >> lane & 1 else 0 for lane, value in enumerate(beat[name])]
    return {**beat, name: kept}


@cocotb.test()
async def values_and_sums_are_exact(dut: Any) -> None:
    """Normalized values and sums equal the golden model's.

    The unit outputs each beat with the same ``mask`` and ``last`` as in the input.
    """
    settings = parameters()
    generator = rng()
    lanes, max_row, stall = settings["lanes"], settings["max_row"], settings["stall"]
    await start_clock(dut, rng())
    driver = StreamDriver(dut, "i", generator, stall=stall)
    monitor = StreamMonitor(dut, "o", generator, stall=stall)
    sum_monitor = StreamMonitor(dut, "o_sum", generator, stall=stall)
    for _ in range(settings["commands"]):
        sizes = generator.integers(1, np.minimum([4, 9, max_row], max_row) + 1)
        n = settings.get("n") or int(generator.choice([1, max_row, *sizes]))
        m = int(generator.integers(1, 2 + settings["beats"] * lanes // n))
        add, rms = int(generator.integers(2)), int(generator.integers(2))
        eps = int(generator.integers(1 << 56)) >> int(generator.integers(57))
        for name, value in {"n": n, "add": add, "rms": rms, "eps": eps}.items():
            getattr(dut, name).value = value
        x, r = random_rows(generator, m, n), random_rows(generator, m, n)
        value, s = normalize(x, r if add else None, rms=bool(rms), eps=eps)

        masks, lasts = masks_of(m, n, lanes)
        payloads = payloads_of(x, r, lanes)
        cocotb.start_soon(driver.send(payloads))
        sums = cocotb.start_soon(sum_monitor.receive(len(payloads)))
        # The output stalls for long before some commands, so that the queue is full.
        for _ in range(int(generator.choice([0, 4 * max_row // lanes + 100]))):
            await RisingEdge(dut.clk)
        values = await monitor.receive(len(payloads))
        for name, layout, bits, expected in (
            ("value", output_layout(lanes), values, value),
            ("s", sum_layout(lanes), await sums, s),
        ):
            beats = beats_of(expected.astype(np.int64), lanes)
            assert [_hide(unpack(layout, word), name) for word in bits] == [
                _hide({name: beat.tolist(), "mask": mask, "last": last}, name)
                for beat, mask, last in zip(beats, masks, lasts, strict=True)
            ], f"n {n}, add {add}, rms {rms}, eps {eps}"


@cocotb.test()
async def no_beat_waits(dut: Any) -> None:
    """If no stream stalls, the add-normalize unit outputs one beat in each cycle.

    A command of m rows with b beats each takes ``latency + b - 1 + m * b`` cycles. If the bench has
    no parameter ``latency``, nothing is tested.
    """
    settings = parameters()
    lanes, max_row, latency = settings["lanes"], settings["max_row"], settings.get("latency")
    await start_clock(dut, rng())
    driver, monitor = StreamDriver(dut, "i", rng()), StreamMonitor(dut, "o", rng())
    dut.o_sum__ready.value = 1
    for n in (1, min(2 * lanes + 1, max_row), max_row) if latency else ():
        dut.n.value = n
        beats = -(-n // lanes)
        x = random_rows(rng(), 4 + 100 // beats, n)
        payloads = payloads_of(x, x, lanes)
        begin = get_sim_time("ns")
        cocotb.start_soon(driver.send(payloads))
        await monitor.receive(len(payloads))
        cycles = round((get_sim_time("ns") - begin) / PERIOD_NS)
        assert cycles == latency + beats - 1 + len(payloads), f"n {n}"
