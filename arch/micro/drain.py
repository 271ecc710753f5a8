"""DRAIN and MAP in microcode."""

from arch.isa import Opcode
from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.epilogue import (
    COUNT,
    FRONT,
    OWN,
    PARAM,
    PARAMS,
    ROW_STEP,
    N,
    T,
    X,
    bit,
    next_row,
)
from arch.micro.memory import FLAGS, LINK, LINK2, OPERANDS, PARAM_WORDS

_TILE, _LEFT, _COLS = OWN[:3]
_IN = OWN[0]
_ACC_ADDR, _ACC_STRIDE, _R_ADDR, _R_STRIDE, _I_ADDR, _I_STRIDE, _I_ZERO = (
    OPERANDS[name]
    for name in ("acc_addr", "acc_stride", "r_addr", "r_stride", "i_addr", "i_stride", "i_zero")
)


def drain(a: Assembler, config: MicroConfig) -> None:
    """Append DRAIN."""
    a.call("begin", LINK)
    a.alu("SLLI", ROW_STEP, FLAGS, 31 - bit(Opcode.DRAIN, "per_row"))
    a.alu("SRAI", ROW_STEP, ROW_STEP, 31)
    a.alu("ANDI", ROW_STEP, ROW_STEP, PARAM_WORDS)
    a.constant(_COLS, config.cols)
    a.label("drain row")
    a.emit("ADDI", FRONT, value="sum in")
    a.move(_TILE, _ACC_ADDR)
    a.constant(_LEFT, 1)
    a.move(COUNT, N)
    a.move(PARAM, PARAMS)
    a.call("epilogue", LINK2)
    a.alu("ADDI", _ACC_ADDR, _ACC_ADDR, 1)
    a.alu("ADD", _R_ADDR, _R_ADDR, _R_STRIDE)
    a.alu("ADD", PARAMS, PARAMS, ROW_STEP)
    next_row(a, "drain row")


def map_rows(a: Assembler, _config: MicroConfig) -> None:
    """Append MAP."""
    a.call("begin", LINK)
    a.emit("ADDI", _IN, value="byte in")
    a.alu("SUB", _I_STRIDE, _I_STRIDE, N)
    a.if_flag(FLAGS, bit(Opcode.MAP, "wide_in"), "map row", T, clear=True)
    a.emit("ADDI", _IN, value="wide in")
    a.alu("SUB", _I_STRIDE, _I_STRIDE, N)
    a.label("map row")
    a.move(FRONT, _IN)
    a.move(COUNT, N)
    a.move(PARAM, PARAMS)
    a.call("epilogue", LINK2)
    a.alu("ADD", _I_ADDR, _I_ADDR, _I_STRIDE)
    a.alu("ADD", _R_ADDR, _R_ADDR, _R_STRIDE)
    next_row(a, "map row")


def fronts(a: Assembler, _config: MicroConfig) -> None:
    """Append the fronts of accumulators and of elements."""
    a.label("sum in")
    a.loop(_LEFT, "same tile")
    a.move(_LEFT, _COLS)
    a.emit("SUMS", ra=_TILE)
    a.alu("ADD", _TILE, _TILE, _ACC_STRIDE)
    a.label("same tile")
    a.emit("SUM", X)
    a.back(LINK)
    a.label("byte in")
    a.load("LBP", X, _I_ADDR, 1)
    a.alu("SUB", X, X, _I_ZERO)
    a.back(LINK)
    a.label("wide in")
    a.load("LHP", X, _I_ADDR, 2)
    a.alu("SUB", X, X, _I_ZERO)
    a.back(LINK)
