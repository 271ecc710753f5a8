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
    """Return the LOAD instruction that copies rows from external memory to the scratchpad.

    - ``m`` is the number of rows, and ``row_bytes`` is the size of a row.
    - ``addr`` is the address in external memory, and ``target`` is the address in the scratchpad.
    - ``outside`` is the row stride (bytes) in external memory, and ``step`` is that in the
      scratchpad. If a stride is 0, the rows are contiguous.
    - ``defines`` is the name of the target's buffer if its old content is not needed any more.
      Otherwise ``defines`` is empty.
    - ``once`` is true if only the first run executes the load. Otherwise every run executes it.
    """
    operands = _moved(target, addr, m, row_bytes, step, outside)
    return Draft(Opcode.LOAD, operands, defines=defines, once=once)


def store(
    source: Ref | Given, addr: int | Given, m: Count, row_bytes: int, outside: int = 0
) -> Draft:
    """Return the STORE instruction that copies contiguous scratchpad rows to external memory.

    - ``source``: scratchpad address of the first row.
    - ``addr``: external address of the first row.
    - ``m``: number of rows.
    - ``outside``: distance (bytes) between rows in external memory. If it is 0, rows are
      contiguous.
    """
    return Draft(Opcode.STORE, _moved(source, addr, m, row_bytes, 0, outside))


def _moved(
    place: Ref | Given, addr: int | Given, m: Count, row_bytes: int, step: int, outside: int
) -> Operands:
    stride = {"dram_stride": outside or row_bytes, "sp_stride": step or row_bytes}
    return {"dram_addr": addr, "sp_addr": place, "m": m, "row_bytes": row_bytes, **stride}


def moved_rows(size: int, longest: int) -> list[tuple[int, int, int]]:
    """Divide ``size`` contiguous bytes into rows for load or store instructions.

    An instruction moves several rows of equal length, at most ``longest`` bytes. The result has an
    element (first byte, number of rows, bytes of a row) for each instruction.

    If ``size`` is at most ``longest``, a single instruction moves all bytes as one row. Otherwise
    the first instruction moves rows of ``longest`` bytes. If bytes remain, a second instruction
    moves them as one row.
    """
    row = min(size, longest)
    rest = size % row
    moves = ((0, size // row, row), (size - rest, 1, rest))
    return [(first, m, count) for first, m, count in moves if count]
