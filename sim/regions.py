"""The memory cells that a step (an instruction of a run) reads and writes."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from celosia.arch.config import Config
from celosia.arch.formats import index_of
from celosia.arch.isa import Opcode
from celosia.arch.sparse import HEADER_BEATS, beat_bytes
from celosia.sim.flow import Step
from celosia.sim.rotary import rotary_places

Memory = Literal["dram", "sp", "acc", "params", "table", "slots", "factors"]


@dataclass(frozen=True)
class Region:
    """Cells of a memory: ``m`` rows of ``count`` cells; row i begins at ``addr + i * stride``."""

    memory: Memory
    addr: int
    stride: int
    m: int
    count: int

    def cells(self) -> NDArray[np.int64]:
        """Return the addresses of the cells, [m, count]: one row for each row of the region."""
        starts = self.addr + self.stride * np.arange(self.m, dtype=np.int64)
        return starts[:, None] + np.arange(self.count, dtype=np.int64)


def meet(some: Collection[Region], others: Collection[Region]) -> bool:
    """Return whether two collections of memory regions have a cell in common."""
    for memory in {region.memory for region in some}:
        cells, other_cells = (
            [region.cells() for region in regions if region.memory == memory]
            for regions in (some, others)
        )
        marked = np.zeros(1 + max(each.max() for each in cells + other_cells), bool)
        for each in cells:
            marked[each] = True
        if any(marked[each].any() for each in other_cells):
            return True
    return False


def ceil_div(value: int, divisor: int) -> int:
    """Return ``value / divisor`` rounded up to an integer."""
    return -(-value // divisor)


def _rows(step: Step, name: str, m: int, count: int) -> Region:
    return Region("sp", step[f"{name}_addr"], step[f"{name}_stride"], m, count)


def _acc(step: Step, config: Config, name: str = "acc") -> Region:
    tiles = ceil_div(step["n"], config.array.cols)
    return Region("acc", step[f"{name}_addr"], step[f"{name}_stride"], tiles, step["m"])


def _tiles(step: Step, config: Config) -> int:
    k, n = step["k"], step["n"]
    if "append" in step.flags and "b_transpose" in step.flags:
        n += step["line"]
    elif "append" in step.flags:
        k += step["line"]
    tiles = ceil_div(k, config.array.rows)
    if "resident" in step.flags and index_of(step.flags):
        tiles = ceil_div(tiles, 2)
    return tiles * ceil_div(n, config.array.cols)


def stored_rows(step: Step, config: Config) -> int:
    """Return the number of scratchpad rows that store an instruction's matrix B [k, n].

    INT8 weights take ``k`` rows. If the flag ``grouped`` is set, a row of scales is added for each
    ``array.rows`` rows or fewer. Weights of other formats take :meth:`WeightFormat.stored_rows`.
    The instruction must not have the flag ``b_transpose``.
    """
    index = index_of(step.flags)
    if not index:
        return step["k"] + ("grouped" in step.flags) * ceil_div(step["k"], config.array.rows)
    group = config.weight_group if "grouped" in step.flags else 0
    return config.formats[index - 1].stored_rows(step["k"], group)


def _matrix(step: Step, config: Config) -> tuple[list[Region], list[Region]]:
    k, n = step["k"], step["n"]
    slots = Region("slots", step["slot"], 0, 1, _tiles(step, config))
    if "pair" in step.flags and step.opcode == Opcode.PRELOAD:
        lines, size = (n, k) if "b_transpose" in step.flags else (k, n)
        return [_rows(step, "b", lines, 2 * size)], [slots]
    size = 2 if step.flags & {"b_high", "b_low"} else 1
    b = _rows(step, "b", n, k * size)
    if "b_transpose" not in step.flags:
        b = _rows(step, "b", stored_rows(step, config), n * size)
    if step.opcode == Opcode.PRELOAD:
        return [b], [slots]
    m = step["m"]
    weights = slots if "resident" in step.flags else b
    a = _rows(step, "a", m, 2 * k if "a_wide" in step.flags else k)
    return [a, weights], [_acc(step, config)]


def _sparse(step: Step, config: Config) -> tuple[list[Region], list[Region]]:
    size = beat_bytes(config.sparse_lanes)
    code = Region("sp", step["b_addr"], size, HEADER_BEATS + step["beats"], size)
    return [_rows(step, "a", step["m"], step["k"]), code], [_acc(step, config)]


def _mover(step: Step) -> tuple[list[Region], list[Region]]:
    m, count = step["m"], step["row_bytes"]
    dram = Region("dram", step["dram_addr"], step["dram_stride"], m, count)
    if step.opcode == Opcode.LOAD:
        return [dram], [_rows(step, "sp", m, count)]
    return [_rows(step, "sp", m, count)], [dram]


def _table_load(step: Step, config: Config) -> tuple[list[Region], list[Region]]:
    if step.opcode == Opcode.PARAMS:
        count = step["n"] * config.param_lines * config.line_bytes
        return [_rows_flat(step, count)], [Region("params", step["params"], 0, 1, step["n"])]
    return [_rows_flat(step, 256)], [Region("table", step["table"], 0, 1, 1)]


def _rows_flat(step: Step, count: int) -> Region:
    return Region("sp", step["i_addr"], 0, 1, count)


def param_words(step: Step, config: Config) -> int:
    """Return the number of parameter words with which a vector instruction requantizes its output.

    A parameter word has the requantization parameters of all lanes. The instruction must not have
    the flag ``per_row`` (one parameter word for each row).
    """
    if "per_tensor" in step.flags:
        return 1
    if step.opcode == Opcode.DRAIN:
        tiles, rest = divmod(step["n"], config.array.cols)
        return tiles * config.lane_groups + ceil_div(rest, config.vector.lanes)
    return ceil_div(step["n"], config.vector.lanes)


def pair_places(step: Step, config: Config) -> NDArray[np.int64]:
    """Return the index of each output column's cosine or sine in a row of the rotary table, [n].

    ``step`` is an instruction with the flag ``rotate``. Even columns have the index of a cosine,
    odd columns that of a sine (:func:`celosia.sim.rotary.rotary_places`).
    """
    return rotary_places(step["n"], step["table"], config.vector.lanes, config.array.cols)


def _vector(step: Step, config: Config) -> tuple[list[Region], list[Region]]:
    m, n, flags = step["m"], step["n"], step.flags
    size, out = 2 if "wide_out" in flags else 1, (m, n)
    if "spaced" in flags:
        out = n // config.array.cols, config.array.cols
    reads, writes = [], [_rows(step, "o", out[0], size * out[1])]
    if step.opcode == Opcode.DRAIN:
        reads.append(_acc(step, config))
        writes.append(_acc(step, config))
    elif "drain" in flags:
        reads.append(_acc(step, config, "i"))
        writes.append(_acc(step, config, "i"))
    else:
        wide = step.opcode in (Opcode.SOFTMAX, Opcode.NORM) or "wide_in" in flags
        reads.append(_rows(step, "i", m, 2 * n if wide else n))
    if "times" in flags:
        reads.append(_rows(step, "r", m, n))
    elif "add" in flags:
        reads.append(_rows(step, "r", m, 2 * n))
    elif "rotate" in flags:
        width = int(pair_places(step, config).max()) + 1
        reads.append(_rows(step, "r", m, 2 * width))
    if "write_sum" in flags:
        writes.append(_rows(step, "s", m, 2 * n))
    if "table" in flags:
        reads.append(Region("table", step["table"], 0, 1, 1))
    if "factors" in flags:
        count = ceil_div(n, config.array.cols) if "by_tile" in flags else m
        kept = Region("factors", step["factor"], 0, 1, count)
        (reads if step.opcode == Opcode.DRAIN else writes).append(kept)
    words = param_words(step, config)
    if "per_row" in flags:
        words = m
    elif step.opcode == Opcode.SOFTMAX and "drain" in flags:
        words += 1
    elif step.opcode == Opcode.NORM and "drain" in flags:
        reads.append(Region("params", step["pre"], 0, 1, ceil_div(n, config.vector.lanes)))
    reads.append(Region("params", step["params"], 0, 1, words))
    return reads, writes


def regions(step: Step, config: Config) -> tuple[list[Region], list[Region]]:
    """Return two lists: the memory regions that an instruction reads, and those that it writes."""
    if step.opcode in (Opcode.LOAD, Opcode.STORE):
        return _mover(step)
    if step.opcode in (Opcode.MATMUL, Opcode.PRELOAD):
        return _matrix(step, config)
    if step.opcode == Opcode.SPARSE:
        return _sparse(step, config)
    if step.opcode in (Opcode.PARAMS, Opcode.TABLE):
        return _table_load(step, config)
    return _vector(step, config)


def sizes(config: Config) -> dict[Memory, int]:
    """Return the number of cells of each memory of a machine, by the memory's name.

    A cell of ``dram`` or ``sp`` is a byte. A cell of another memory is a row of accumulators, the
    parameters of all lanes, an activation table, a row's factor, or a tile of weights.
    """
    return {
        "dram": 1 << config.memory.addr_width,
        "sp": config.scratchpad.bytes,
        "acc": config.accumulators.depth,
        "params": config.vector.words,
        "table": config.table_slots,
        "factors": config.row_factors,
        "slots": config.array.weight_depth,
    }
