"""Instructions that make what is in a machine zero, as random programs expect to find it."""

from arch.config import Config
from arch.instruction import Instruction
from arch.isa import RING_SLOTS, Opcode

CLEARED_ROW = 256
"""Bytes of zeros that are copied over the scratchpad, and of a row as it is stored."""


def clearing(config: Config, zeros: int = 0) -> list[Instruction]:
    """Return what clears all but accumulators, which a machine clears after a reset.

    That is the scratchpad, parameters, tables and weight slots. A scratchpad row of
    zeros lies in external memory at the address ``zeros``.
    """
    row = min(CLEARED_ROW, config.bank_bytes)
    rows = config.bank_bytes // row
    program = [
        Instruction(
            Opcode.LOAD,
            {
                "dram_addr": zeros,
                "sp_addr": bank * config.bank_bytes,
                "sp_stride": row,
                "m": rows,
                "row_bytes": row,
            },
        )
        for bank in range(config.scratchpad_banks)
    ]
    words = config.bank_bytes // (config.param_lines * config.line_bytes)
    for first, count in _pieces(config.param_depth, words):
        program.append(Instruction(Opcode.PARAMS, {"params": first, "n": count}))
    if config.activation:
        slots = range(config.table_slots)
        program += [Instruction(Opcode.TABLE, {"table": slot}) for slot in slots]
    if config.weight_depth > RING_SLOTS:
        for slot in range(RING_SLOTS, config.weight_depth):
            operands = {"k": config.rows, "n": config.cols, "b_stride": config.cols, "slot": slot}
            program.append(Instruction(Opcode.PRELOAD, operands))
    return program


def clearing_sums(config: Config) -> list[Instruction]:
    """Return what clears accumulators, after :func:`clearing`."""
    program = []
    for first, count in _pieces(config.acc_depth, config.bank_bytes // config.cols):
        operands = {"acc_addr": first, "o_stride": config.cols, "m": count, "n": config.cols}
        program.append(Instruction(Opcode.DRAIN, operands, frozenset({"per_tensor"})))
    return program


def _pieces(total: int, most: int) -> list[tuple[int, int]]:
    """Cut a range into pieces, each its first place and its length."""
    return [(first, min(most, total - first)) for first in range(0, total, most)]
