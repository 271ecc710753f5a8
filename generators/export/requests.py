"""Memory and registers that an inference needs before its start, for every number of rows."""

from dataclasses import dataclass

import numpy as np

from arch.registers import REGISTER_MAP
from generators.compiler import CompiledModel

REGISTER_BYTES = 4
"""Bytes from register to register."""


@dataclass(frozen=True)
class RowsRequest:
    """Memory and registers for one number of rows, besides the input itself."""

    rows: int
    registers: dict[str, int]
    """Registers of the host port, by name."""
    writes: tuple[tuple[int, bytes], ...]
    """Bytes for external memory, each at an address."""


def requests(compiled: CompiledModel) -> list[RowsRequest]:
    """Return what each number of rows needs; the last has the most rows."""
    source = compiled.quantized.input
    least = 1 if compiled.quantized.description.variable else source.rows
    found = []
    for rows in range(least, source.rows + 1):
        request = compiled.request(np.zeros((rows, source.columns)))
        registers = {f"R{number}": value for number, value in request.registers.items()}
        writes = tuple(write for write in request.writes if write[0] != compiled.input_addr)
        found.append(RowsRequest(rows, registers, writes))
    return found


def register_offset(name: str) -> int:
    """Return the byte offset of a register."""
    return REGISTER_BYTES * REGISTER_MAP[name].addr
