"""Check that an instruction reads and writes only memory cells that it may access.

The cells must exist. Rows in the scratchpad must not cross a bank, and rows in the scratchpad and
in external memory must be aligned. An instruction must not read an accumulator row twice.
"""

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import ProgramError
from celosia.arch.isa import Opcode
from celosia.sim.flow import Step
from celosia.sim.regions import Region, regions, sizes


def check_accesses(step: Step, config: Config) -> None:
    """Raise :class:`ProgramError` if an instruction accesses memory cells that it must not access.

    An instruction must follow these rules:

    - A cell is inside its memory.
    - A row in the scratchpad does not cross a bank.
    - Rows in the scratchpad and in external memory are aligned.
    - An accumulator row is read only once.
    """
    reads, writes = regions(step, config)
    for kind, touched in (("reads", reads), ("writes", writes)):
        for region in touched:
            _check_region(step, kind, region, config)
    _check_taken(step, reads)


def _check_taken(step: Step, reads: list[Region]) -> None:
    """Refuse tile columns of sums that share accumulator rows: the first read clears them."""
    for region in reads:
        if region.memory == "acc" and region.m > 1 and abs(region.stride) < region.count:
            raise ProgramError(
                f"{step} takes accumulator rows twice: its tile columns are {region.stride} rows "
                f"apart and have m = {region.count}"
            )


def _check_region(step: Step, kind: str, region: Region, config: Config) -> None:
    first, last = region.addr, region.addr + region.stride * (region.m - 1)
    low, high = min(first, last), max(first, last) + region.count
    size = sizes(config)[region.memory]
    if low < 0 or high > size:
        raise ProgramError(
            f"{step} {kind} {region.memory} from {low} to {high - 1}, but it has {size}"
        )
    if region.memory == "sp" and region.m * region.count:
        flat = step.opcode in (Opcode.PARAMS, Opcode.TABLE)
        if not flat and _crosses(region, low, high, config.bank_bytes):
            raise ProgramError(
                f"{step} {kind} a scratchpad row that crosses a bank of {config.bank_bytes} bytes"
            )
        _check_starts(step, kind, "scratchpad", region, config.scratchpad.align)
    if region.memory == "dram":
        _check_starts(step, kind, "external", region, config.mem_bytes)


def _crosses(region: Region, low: int, high: int, bank: int) -> bool:
    """Return whether a row of a region from cell ``low`` to ``high`` - 1 is in two banks."""
    if low // bank == (high - 1) // bank:
        return False
    starts = region.addr + region.stride * np.arange(region.m, dtype=np.int64)
    return bool(np.any(starts // bank != (starts + region.count - 1) // bank))


def _check_starts(step: Step, kind: str, memory: str, region: Region, align: int) -> None:
    if region.addr % align or (region.m > 1 and region.stride % align):
        raise ProgramError(f"{step} {kind} {memory} rows that do not start at multiples of {align}")
