"""DRAIN and MAP in microcode."""

from arch.isa import Opcode
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.epilogue import (
    COLUMNS,
    COUNT,
    ELEMENT_IN,
    LEFT,
    PARAM,
    PARAMS,
    ROW_COUNT,
    ROW_STEP,
    TILE,
    N,
    T,
    X,
    bit,
    choose_loop,
    next_row,
    run_loop,
    whole_tiles,
)
from arch.micro.memory import FLAGS, LINK, OPERANDS, PARAM_WORDS, ZERO

_ACC_ADDR, _R_ADDR, _R_STRIDE, _I_ADDR, _I_STRIDE, _I_ZERO = (
    OPERANDS[name] for name in ("acc_addr", "r_addr", "r_stride", "i_addr", "i_stride", "i_zero")
)


def drain(a: Assembler, config: MicroConfig) -> None:
    """Append DRAIN."""
    a.call("begin", LINK)
    choose_loop(a, "sums in")
    a.alu("SLLI", ROW_STEP, FLAGS, 31 - bit(Opcode.DRAIN, "per_row"))
    a.alu("SRAI", ROW_STEP, ROW_STEP, 31)
    a.alu("ANDI", ROW_STEP, ROW_STEP, PARAM_WORDS)
    a.constant(COLUMNS, config.cols)
    a.move(ROW_COUNT, N)
    if whole_tiles(config):
        a.alu("ANDI", T, N, config.cols - 1)
        a.branch("BNE", T, ZERO, "drain row")
        choose_loop(a, "tiles in")
        a.alu("SRLI", ROW_COUNT, N, config.cols.bit_length() - 1)
    a.label("drain row")
    a.move(TILE, _ACC_ADDR)
    a.constant(LEFT, 1)
    a.move(COUNT, ROW_COUNT)
    a.move(PARAM, PARAMS)
    run_loop(a)
    a.alu("ADDI", _ACC_ADDR, _ACC_ADDR, 1)
    a.alu("ADD", _R_ADDR, _R_ADDR, _R_STRIDE)
    a.alu("ADD", PARAMS, PARAMS, ROW_STEP)
    next_row(a, "drain row")


def map_rows(a: Assembler, _config: MicroConfig) -> None:
    """Append MAP."""
    a.call("begin", LINK)
    choose_loop(a, "map in")
    a.emit("ADDI", ELEMENT_IN, value="byte in")
    a.alu("SUB", _I_STRIDE, _I_STRIDE, N)
    a.if_flag(FLAGS, bit(Opcode.MAP, "wide_in"), "map row", T, clear=True)
    a.emit("ADDI", ELEMENT_IN, value="wide in")
    a.alu("SUB", _I_STRIDE, _I_STRIDE, N)
    a.label("map row")
    a.move(COUNT, N)
    a.move(PARAM, PARAMS)
    run_loop(a)
    a.alu("ADD", _I_ADDR, _I_ADDR, _I_STRIDE)
    a.alu("ADD", _R_ADDR, _R_ADDR, _R_STRIDE)
    next_row(a, "map row")


def fronts(a: Assembler, _config: MicroConfig) -> None:
    """Append the routines that fetch MAP's elements."""
    a.label("byte in")
    a.load("LBP", X, _I_ADDR, 1)
    a.alu("SUB", X, X, _I_ZERO)
    a.back(LINK)
    a.label("wide in")
    a.load("LHP", X, _I_ADDR, 2)
    a.alu("SUB", X, X, _I_ZERO)
    a.back(LINK)
