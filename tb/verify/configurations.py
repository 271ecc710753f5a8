"""Random configurations for tests: every field varies, and the machines are small enough to run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from celosia.arch.access import next_power_of_two
from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.arch.formats import FORMATS, MOST_FORMATS, OPERAND_BITS
from celosia.arch.protection import LEVELS
from celosia.arch.protection import UNITS as PROTECTED
from celosia.arch.rules import ARRAYS, MULTIPLIER_WIDTHS, WIDE_SUMS
from celosia.arch.sparse import ENTRY_WIDTH, MOST_LOADED, beat_bytes
from celosia.arch.vector_config import PARAM_BYTES

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

LARGEST = 12, 24
"""Most rows and columns (elements) of an array: for most configurations, and for one in ten."""

Random = np.random.Generator


def random_config(rng: Random) -> Config:
    """Return a random valid configuration, small enough for a simulation.

    Arrays have at most 12 rows and columns, or 24 in one of ten. Each optional unit is absent in at
    least a quarter of the configurations. Program memory has at least 1,200 words, and external
    memory 64 KB.
    """
    config = _base(rng)
    for option in _OPTIONS:
        if rng.random() < 0.5:
            try:
                config = config.replace(**option(rng, config))
            except InputError:
                continue  # a field that it needs has another value
    # The largest power of two that divides the bytes of each access, or a smaller one.
    least = config.array.rows | config.array.cols | config.vector.lanes | config.mem_bytes
    if config.sparse_lanes:
        least |= MOST_LOADED | beat_bytes(config.sparse_lanes)
    return config.replace(scratchpad_align=int(2 ** rng.integers((least & -least).bit_length())))


def _between(rng: Random, low: int, high: int) -> int:
    """Return an integer from low to high; small ones and the lowest are frequent."""
    if rng.random() < 0.2:
        return low
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _base(rng: Random) -> Config:
    """Return a configuration with random sizes and units; the other fields have their defaults."""
    largest = LARGEST[int(rng.random() < 0.1)]
    rows, cols = _between(rng, 1, largest), _between(rng, 1, largest)
    lanes = int(rng.integers(1, cols + 1))
    mem_width = int(8 << rng.integers(7))
    units = {unit: bool(rng.random() < 0.75) for unit in UNITS}
    units["fused"] &= (units["softmax"] or units["norm"]) and cols % lanes == 0
    units["rotary"] &= lanes % 2 == 0 and cols % 2 == 0
    operand_width, zero_points = int(rng.integers(2, 9)), bool(rng.random() < 0.7)
    array = str(rng.choice(ARRAYS))
    if rng.random() < 0.4:
        # Operands with which most of the other fields can have any value.
        operand_width, zero_points, units["operand_gating"] = OPERAND_BITS, False, False
        array = str(rng.choice([array, "tree"]))
    wide = bool(operand_width == OPERAND_BITS and zero_points and rng.random() < 0.5)
    wider = [count for count in range(lanes, cols + 1, lanes) if not cols % count]
    softmax_lanes = int(rng.choice([0, *wider])) * units["softmax"]
    line = max(max(rows, cols) << wide, 2 * max(lanes, softmax_lanes), mem_width // 8)
    # A bank has 8 lines of the widest access, and 2 parameter words of the vector engine.
    banks = int(1 << rng.integers(5))
    bank_bytes = max(8 * next_power_of_two(line), next_power_of_two(2 * PARAM_BYTES * lanes), 256)
    max_k = _between(rng, 40, 3000)
    # As Config.sum_width; a random width from there up to the widest accumulator.
    most = (1 << operand_width) - 1 if zero_points else 1 << (operand_width - 1)
    sum_width = (max_k * most * most).bit_length() + 1
    _between(rng, 10, 200)  # drawn for a field that was: the machines of recorded seeds stay
    return Config.of(
        name="random",
        rows=rows,
        cols=cols,
        lanes=lanes,
        softmax_lanes=softmax_lanes,
        weight_depth=_between(rng, 2, 20),
        operand_width=operand_width,
        zero_points=zero_points,
        max_k=max_k,
        acc_width=WIDE_SUMS if wide else int(rng.integers(max(4, sum_width), 33)),
        wide_operands=wide,
        scratchpad_bytes=banks * (bank_bytes << int(rng.integers(4))),
        scratchpad_banks=banks,
        acc_depth=_between(rng, 2, 200),
        mem_width=mem_width,
        mem_addr_width=int(rng.integers(16, 19)),
        program_depth=_between(rng, 1200, 4000),
        param_depth=_between(rng, 1, 64),
        **_tables(rng, units["activation"]),
        max_row=_between(rng, 1, 100),
        queue_depth=_between(rng, 1, 5),
        trace=bool(rng.random() < 0.5),
        **units,
        array=array,
        registered=bool(rng.random() < 0.5),
        packed=bool(rng.random() < 0.5),
        wide_functions=bool(units["activation"] and rng.random() < 0.5),
    )


def _tables(rng: Random, present: bool) -> dict[str, int]:
    """Return the number of activation tables, if there is a unit for them."""
    slots = _between(rng, 1, 5)
    return {"table_slots": slots} if present else {}


def _passes(rng: Random, config: Config) -> dict[str, Any]:
    pass_width = int(rng.choice([1, 4, OPERAND_BITS]))
    return {"pass_width": pass_width, "packed": config.array.packed and pass_width > 1}


def _formats(rng: Random, config: Config) -> dict[str, Any]:
    names = rng.permutation(list(FORMATS))[: _between(rng, 1, MOST_FORMATS)]
    group = config.array.rows * int(rng.choice([0, 1, 2, 4]))
    return {"weight_formats": ",".join(names), "weight_group": group}


def _slots(_rng: Random, config: Config) -> dict[str, Any]:
    return {"packed_slots": True, "weight_group": 2 * config.weight_group}


def _cache(rng: Random, config: Config) -> dict[str, Any]:
    fields: dict[str, Any] = {"packed_cache": True}
    if config.passes == 1:
        fields["low_rows"] = int(rng.integers(config.array.rows - config.high_rows + 1))
        fields["block_exponents"] = bool(rng.integers(2))
    return fields


def _sparse(rng: Random, config: Config) -> dict[str, Any]:
    most = min(64, 8 * config.line_bytes // ENTRY_WIDTH)
    return {"sparse_lanes": _between(rng, 1, most), "sparse_depth": int(1 << rng.integers(4, 13))}


def _protect(rng: Random, _config: Config) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {"protect": str(rng.choice(LEVELS))}
    units = rng.permutation(list(PROTECTED))[: int(rng.integers(1, len(PROTECTED)))]
    return {"protect": ",".join(f"{unit}={rng.choice(LEVELS)}" for unit in units)}


_OPTIONS: tuple[Callable[[Random, Config], dict[str, Any]], ...] = (
    _passes,
    _formats,
    _slots,
    _cache,
    _sparse,
    lambda _rng, _config: {"sleep": True},
    lambda rng, _config: {"throttle": _between(rng, 2, 256)},
    _protect,
    lambda _rng, _config: {"counters": False},
    lambda rng, _config: {"watchdog": int(rng.choice([0, 1 << rng.integers(13, 29)]))},
    lambda rng, config: {"pre_depth": int(rng.integers(1, config.vector.words + 1))},
    lambda rng, _config: {"bias_width": int(rng.integers(1, 33))},
    lambda _rng, _config: {"multiplier_width": MULTIPLIER_WIDTHS[0]},
    lambda rng, _config: {"row_factors": _between(rng, 1, 64)},
)
"""Random values of fields; a rule may refuse them because of other fields."""
