"""Bench of the softmax unit: random rows, masks and stalls against the golden model.

Parameters: ``lanes`` and ``max_row`` of the unit, ``rows`` to run (default 60).
"""

import cocotb
import numpy as np

from hdl.functions.row_divide import probability_layout
from hdl.functions.softmax import score_layout
from sim.softmax import softmax
from tb.bench import StreamDriver, StreamMonitor, pack, parameters, rng, start_clock, unpack


def row_beats(q, mask, lanes):
    """Return a row's input payloads and the expected outputs, one per beat."""
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


@cocotb.test()
async def test_rows(dut):
    """Rows of every length, some without any column, some with one dominant score."""
    given, random = parameters(), rng()
    lanes, max_row = given["lanes"], given["max_row"]
    payloads, expected = [], []
    for index in range(given.get("rows", 60)):
        length = max_row if index % 4 == 0 else int(random.integers(1, max_row + 1))
        span = int(random.choice([8, 800, 32768]))
        q = random.integers(-span, span, length)
        if index % 3 == 0:
            q = np.full(length, -span)
            q[random.integers(length)] = span - 1
        mask = random.random(length) < random.choice([0.0, 0.5, 1.0, 1.0])
        row = row_beats(q, mask, lanes)
        payloads += row[0]
        expected += row[1]
    await start_clock(dut, rng())
    stall = float(random.choice([0.0, 0.3]))
    cocotb.start_soon(StreamDriver(dut, "i", random, stall=stall).send(payloads))

    def check(index, bits):
        assert unpack(probability_layout(lanes), bits) == expected[index], f"beat {index}"

    await StreamMonitor(dut, "o", random, stall=stall).receive(len(payloads), check)
