"""Random configurations: every field varies over sizes that a simulation can run."""

import numpy as np

from arch.config import Config
from arch.fields import next_power_of_two
from arch.formats import OPERAND_BITS
from arch.rules import ARRAYS, PASS_WIDTHS, WIDE_SUMS

UNITS = (
    "b_transpose",
    "operand_gating",
    "activation",
    "softmax",
    "norm",
    "fused",
    "rotary",
    "argmax",
)
"""The fields that leave a unit out."""

PARAM_BYTES = 9


def random_config(rng: np.random.Generator) -> Config:
    """Return a random admissible configuration, small enough to be simulated.

    Arrays are from 1x1 to 12x12, each unit is absent in one of four, and every memory is at times
    as small as it can be while a random program still fits: a scratchpad bank holds at least 8
    lines and 2 words of parameters, external memory at least 64 KB, the program 1,200 words.
    """

    def between(low: int, high: int) -> int:
        """Return an integer from low to high; small ones and the lowest are frequent."""
        if rng.random() < 0.2:
            return low
        return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))

    rows, cols = between(1, 12), between(1, 12)
    lanes = int(rng.integers(1, cols + 1))
    mem_width = int(8 << rng.integers(5))
    operand_width = int(rng.integers(2, 9))
    zero_points = bool(rng.random() < 0.7)
    wide = bool(operand_width == OPERAND_BITS and zero_points and rng.random() < 0.5)
    line_bytes = next_power_of_two(max(max(rows, cols) << wide, 2 * lanes, mem_width // 8))
    banks = int(1 << rng.integers(4))
    bank_bytes = max(8 * line_bytes, next_power_of_two(2 * PARAM_BYTES * lanes), 256)
    max_k = between(40, 3000)
    units = {unit: bool(rng.random() < 0.75) for unit in UNITS}
    units["fused"] &= (units["softmax"] or units["norm"]) and cols % lanes == 0
    units["rotary"] &= lanes % 2 == 0 and cols % 2 == 0
    # As Config.sum_width; a random width from there up to the widest accumulator.
    largest = (1 << operand_width) - 1 if zero_points else 1 << (operand_width - 1)
    sum_width = (max_k * largest * largest).bit_length() + 1
    config = Config(
        name="random",
        rows=rows,
        cols=cols,
        lanes=lanes,
        weight_depth=between(2, 20),
        operand_width=operand_width,
        zero_points=zero_points,
        max_k=max_k,
        acc_width=WIDE_SUMS if wide else int(rng.integers(max(4, sum_width), 33)),
        wide_operands=wide,
        scratchpad_bytes=banks * (bank_bytes << int(rng.integers(4))),
        scratchpad_banks=banks,
        acc_depth=between(2, 200),
        mem_width=mem_width,
        mem_addr_width=int(rng.integers(16, 19)),
        program_depth=between(1200, 4000),
        param_depth=between(1, 64),
        table_slots=between(1, 5),
        max_row=between(1, 100),
        queue_depth=between(1, 5),
        trace=bool(rng.random() < 0.5),
        **units,
        array=str(rng.choice(ARRAYS)),
        registered=bool(rng.random() < 0.5),
        packed=bool(rng.random() < 0.5),
        wide_functions=bool(units["activation"] and rng.random() < 0.5),
    )
    # The largest power of two that divides what is read or written at once, or one below.
    least = rows | cols | lanes | mem_width // 8
    align = int(2 ** rng.integers((least & -least).bit_length()))
    config = config.replace(scratchpad_align=align)
    if units["softmax"] and not cols % lanes:
        wider = [count for count in range(lanes, cols + 1, lanes) if not cols % count]
        config = config.replace(softmax_lanes=int(rng.choice([0, *wider])))
    if operand_width < OPERAND_BITS or zero_points or config.operand_gating:
        return config
    pass_width = int(rng.choice(PASS_WIDTHS))
    return config.replace(pass_width=pass_width, packed=config.packed and pass_width > 1)
