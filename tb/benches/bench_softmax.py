"""Bench of the softmax unit: random rows and masks, with random stalls of the unit's streams.

Parameters: ``lanes`` and ``max_row`` of the unit; ``latency``, the unit's expected latency in
cycles (optional); ``rows``, the number of rows of random lengths; ``short``, the number of short
rows after the other rows.
"""

from itertools import pairwise

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from celosia.hdl.functions.row_divide import probability_layout
from celosia.hdl.functions.row_maximum import score_layout
from celosia.sim.softmax import softmax
from celosia.tb.benches.common import StreamDriver, StreamMonitor, parameters, rng, start_clock
from celosia.tb.machine.packing import pack, unpack
from celosia.tb.machine.toolchain import PERIOD_NS

BLOCK = 30
"""Rows of a block."""


def row_beats(q, mask, lanes):
    """Return two lists with one entry for each beat of a row.

    The first list has the payloads to send, as integers; the second has the expected outputs, as
    dictionaries from field to value. ``q`` and ``mask`` [n] are the row's scores and mask.
    """
    count = -(-len(q) // lanes)
    scores = np.zeros(count * lanes, dtype=np.int64)
    scores[: len(q)] = q
    keep = np.zeros(count * lanes, dtype=bool)
    keep[: len(q)] = mask
    p = softmax(scores, keep).reshape(count, lanes)
    bits = (keep.reshape(count, lanes) << np.arange(lanes)).sum(axis=1).tolist()
    payloads, expected = [], []
    for beat, row in enumerate(scores.reshape(count, lanes).tolist()):
        common = {"mask": bits[beat], "last": int(beat == count - 1)}
        payloads.append(pack(score_layout(lanes), {"q": row} | common))
        expected.append({"p": p[beat].tolist()} | common)
    return payloads, expected


def random_row(random, index, lanes, max_row):
    """Return random scores [n] and a random mask [n] for the row with the number ``index``.

    ``BLOCK`` rows of any length up to ``max_row`` alternate with ``BLOCK`` rows of at most
    ``3 * lanes`` scores.
    """
    if index // BLOCK % 2:
        length = int(random.integers(1, min(3 * lanes, max_row) + 1))
    else:
        length = max_row if index % 4 == 0 else int(random.integers(1, max_row + 1))
    span = int(random.choice([1, 8, 100, 800, 32768]))
    q = random.integers(-span, span, length)
    if index % 5 == 0:  # no score is above the value of masked columns
        q = random.integers(0, span, length) // 200 - 32768
    elif index % 3 == 0:
        q = np.full(length, -span)
        q[random.integers(length)] = span - 1
    return q, random.random(length) < random.choice([0.0, 0.5, 1.0, 1.0])


def short_row(random, longest):
    """Return random scores [n] of a short row, and a mask [n] of ones.

    n is at most ``longest``, most often 1 or 2; the scores are close to each other.
    """
    length = min(longest, int(random.choice([1, 2, int(random.integers(1, longest + 1))])))
    return random.integers(-6000, 1, length), np.ones(length, bool)


@cocotb.test()
async def test_rows(dut):
    """Probabilities equal the golden model's for rows of any length.

    Some rows have all columns masked, some have one dominant score. Before each block of rows the
    bench accepts no output for many cycles, so that the queues fill with long or with short rows.
    """
    settings, random = parameters(), rng()
    lanes, max_row = settings["lanes"], settings["max_row"]
    rows, short = settings.get("rows", 90), settings.get("short", 400)
    payloads, expected, pauses = [], [], []
    for index in range(rows + short):
        if (index <= rows and index % BLOCK == 0) or index == rows:
            pauses.append(len(payloads))
        drawn = (
            random_row(random, index, lanes, max_row)
            if index < rows
            else short_row(random, min(3 * lanes, max_row))
        )
        row = row_beats(*drawn, lanes)
        payloads += row[0]
        expected += row[1]
    await start_clock(dut, rng())
    stall = float(random.choice([0.0, 0.3]))
    cocotb.start_soon(StreamDriver(dut, "i", random, stall=stall).send(payloads))
    monitor = StreamMonitor(dut, "o", random, stall=stall)
    for start, end in pairwise([*pauses, len(payloads)]):

        def check(index, bits, start=start):
            wanted = expected[start + index]
            assert unpack(probability_layout(lanes), bits) == wanted, f"beat {start + index}"

        for _ in range(100 + 3 * max_row // lanes):
            await RisingEdge(dut.clk)
        await monitor.receive(end - start, check)


@cocotb.test()
async def test_no_beat_waits(dut):
    """If no stream stalls, the softmax unit outputs a beat in every cycle after the first output.

    From the first input to the last output, m rows of b beats each take
    ``latency + 2 * (b - 1) + m * b`` cycles. If the bench has no parameter ``latency``, nothing is
    tested.
    """
    settings, random = parameters(), rng()
    lanes, latency = settings["lanes"], settings.get("latency")
    await start_clock(dut, rng())
    driver, monitor = StreamDriver(dut, "i", random), StreamMonitor(dut, "o", random)
    for n in (1, settings["max_row"]) if latency else ():
        beats = -(-n // lanes)
        row, expected = row_beats(random.integers(-500, 500, n), np.ones(n, bool), lanes)
        count = 2 + 150 // beats
        begin = get_sim_time("ns")
        cocotb.start_soon(driver.send(row * count))
        beats_out = await monitor.receive(len(row) * count)
        cycles = round((get_sim_time("ns") - begin) / PERIOD_NS)
        assert [unpack(probability_layout(lanes), bits) for bits in beats_out] == expected * count
        assert cycles == latency + 2 * (beats - 1) + len(beats_out), f"rows of {n}"
