"""Bench of ``celosia.hdl.matrix.decoder.WeightDecoder``: random matrices in random formats.

Parameters: ``config``, the configuration's fields that differ from the preset ``small``;
``matrices``, the number of matrices; ``stall``, the probability in each cycle that the bench sends
no input.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.formats import DIGITS
from celosia.arch.presets import PRESETS
from celosia.hdl.matrix.decoder import step_layout
from celosia.sim.formats import pack, unpack
from celosia.tb.benches.common import parameters, rng, start_clock
from celosia.tb.machine.packing import pack as payload


@cocotb.test()
async def weights_are_exact(dut: Any) -> None:
    """Every row of decoded weights equals the golden model's row."""
    settings, generator = parameters(), rng()
    config = PRESETS["small"].replace(**settings["config"])
    cols, layout = config.array.cols, step_layout(config.formats, config.weight_group)
    steps: list[tuple[dict[str, int], np.ndarray, np.ndarray | None]] = []
    for _ in range(settings["matrices"]):
        index = int(generator.integers(1, len(config.formats) + 1))
        form, k = config.formats[index - 1], int(generator.integers(1, 100))
        group = int(generator.choice([0, config.weight_group]))
        codes = generator.integers(0, len(form.values), (k, cols))
        scales = generator.integers(0, 256, (-(-k // group), cols)) if group else None
        stored = iter(pack(codes, form, group, scales))
        wanted = unpack(pack(codes, form, group, scales), k, form, group)
        have = 0
        for place in range(k):
            grouped = {"grouped": 1} if group else {}
            if group and place % group == 0:
                have = 0
                steps.append((grouped | {"format": index, "scale": 1}, next(stored), None))
            size, whole = (1, DIGITS) if form.digits else (form.width, 8)
            fetch = have < size
            step_fields = grouped | {"format": index, "fetch": fetch, "have": have}
            line = next(stored) if fetch else generator.integers(0, 256, cols)
            steps.append((step_fields, line, wanted[place]))
            have += (whole if fetch else 0) - size
        # INT8 weights must pass unchanged.
        plain = generator.integers(-128, 128, cols)
        steps.append(({"format": 0}, plain, plain))

    await start_clock(dut)
    expected: np.ndarray | None = None
    while steps or expected is not None:
        now = None
        dut.step__valid.value = 0
        if steps and generator.random() >= settings["stall"]:
            step, line, now = steps.pop(0)
            dut.step__valid.value = 1
            dut.step__payload.value = payload(layout, step)
            row = (line[:cols].astype(np.int64) % 256).astype(np.uint8)
            dut.bytes.value = int.from_bytes(row.tobytes(), "little")
        await FallingEdge(dut.clk)
        if expected is not None:
            line_bits = int(dut.o.value).to_bytes(len(dut.o) // 8, "little")
            assert np.frombuffer(line_bits, np.int8)[:cols].tolist() == expected.tolist()
        await RisingEdge(dut.clk)
        expected = now
