"""LOAD and STORE instructions, which copy rows between external memory and scratchpad."""

from celosia.arch.isa import Opcode
from celosia.generators.lower.instructions import Count, Operands
from celosia.generators.program.draft import Draft, Given, Ref


def load(
    target: Ref | Given,
    addr: int | Given,
    m: Count,
    row_bytes: int,
    defines: str = "",
    step: int = 0,
    outside: int = 0,
    *,
    once: bool = False,
) -> Draft:
    """Return the LOAD instruction that copies ``m`` rows from external memory to the scratchpad.

    - ``outside``: row stride (bytes) in external memory, 0 for contiguous rows.
    - ``step``: row stride (bytes) in the scratchpad, 0 for contiguous rows.
    - ``defines``: buffer whose old content is no longer needed, or empty.
    - ``once``: true to load in the first run only.
    """
    operands = _moved(target, addr, m, row_bytes, step, outside)
    return Draft(Opcode.LOAD, operands, defines=defines, once=once)


def store(
    source: Ref | Given, addr: int | Given, m: Count, row_bytes: int, outside: int = 0
) -> Draft:
    """Return the STORE instruction that copies contiguous scratchpad rows to external memory.

    ``source`` and ``addr`` are the addresses of the first of ``m`` rows. ``outside`` is the row
    stride (bytes) in external memory, 0 for contiguous rows.
    """
    return Draft(Opcode.STORE, _moved(source, addr, m, row_bytes, 0, outside))


def _moved(
    place: Ref | Given, addr: int | Given, m: Count, row_bytes: int, step: int, outside: int
) -> Operands:
    stride = {"dram_stride": outside or row_bytes, "sp_stride": step or row_bytes}
    return {"dram_addr": addr, "sp_addr": place, "m": m, "row_bytes": row_bytes, **stride}


def moved_rows(size: int, longest: int) -> list[tuple[int, int, int]]:
    """Divide ``size`` contiguous bytes into rows for one or two load or store instructions.

    The result has (first byte, number of rows, bytes of a row) for each instruction. A row has at
    most ``longest`` bytes.
    """
    row = min(size, longest)
    rest = size % row
    moves = ((0, size // row, row), (size - rest, 1, rest))
    return [(first, m, count) for first, m, count in moves if count]
