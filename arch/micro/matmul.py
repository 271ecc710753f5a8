"""MATMUL in microcode: tile by tile, each of its weights once, then every row of activations."""

from arch.micro.assembler import Assembler
from arch.micro.config import MicroConfig
from arch.micro.memory import FLAGS, FREE, OPERANDS, ZERO, memory_map

_B_STEP, _B_COLUMN = FREE[:2]  # bytes along k, along n
_A_TILE, _B_TILE, _B_TOP, _ACC_TILE, _ACC_STEP = FREE[2:7]
_K_LEFT, _N_LEFT, _ROWS_LEFT, _COLUMNS, _LENGTH = FREE[7:12]
_POINT, _PLACE, _HELP, _ONE, _BLANKS, _MISSING = FREE[12:18]
_B_TRANSPOSE = 0


def matmul(a: Assembler, config: MicroConfig) -> None:
    """Append MATMUL of streamed weights without zero points.

    Weights past k or n are 0, so that it does not matter what is read or summed there.
    """
    _begin(a, config)
    a.label("MATMUL column")
    a.move(_A_TILE, OPERANDS["a_addr"])
    a.move(_B_TILE, _B_TOP)
    a.move(_K_LEFT, OPERANDS["k"])
    a.label("MATMUL tile")
    _weights(a, config)
    _stream(a, config)
    a.alu("ADDI", _A_TILE, _A_TILE, config.rows)
    _skip(a, _B_TILE, _B_STEP, config.rows)
    a.alu("ADDI", _K_LEFT, _K_LEFT, -config.rows)
    a.branch("BLT", ZERO, _K_LEFT, "MATMUL tile")
    a.alu("ADD", _ACC_TILE, _ACC_TILE, _ACC_STEP)
    _skip(a, _B_TOP, _B_COLUMN, config.cols)
    a.alu("ADDI", _N_LEFT, _N_LEFT, -config.cols)
    a.branch("BLT", ZERO, _N_LEFT, "MATMUL column")


def _begin(a: Assembler, config: MicroConfig) -> None:
    """Append steps, strides and where the sums go."""
    a.constant(_ONE, 1)
    a.move(_B_COLUMN, _ONE)
    a.move(_B_STEP, OPERANDS["b_stride"])
    a.if_flag(FLAGS, _B_TRANSPOSE, "MATMUL straight", _HELP, clear=True)
    a.move(_B_COLUMN, OPERANDS["b_stride"])
    a.move(_B_STEP, _ONE)
    a.label("MATMUL straight")
    a.constant(_HELP, config.cols)
    a.multiply(_HELP, OPERANDS["acc_addr"])
    a.low(_ACC_TILE)
    a.multiply(_HELP, OPERANDS["acc_stride"])
    a.constant(_HELP, memory_map(config).acc)
    a.alu("ADD", _ACC_TILE, _ACC_TILE, _HELP)
    a.low(_ACC_STEP)
    a.move(_B_TOP, OPERANDS["b_addr"])
    a.move(_N_LEFT, OPERANDS["n"])


def _skip(a: Assembler, pointer: int, step: int, count: int) -> None:
    """Append a pointer's way over so many steps."""
    if count & (count - 1):
        for _ in range(count):
            a.alu("ADD", pointer, pointer, step)
    else:
        a.alu("SLLI", _HELP, step, count.bit_length() - 1)
        a.alu("ADD", pointer, pointer, _HELP)


def _weights(a: Assembler, config: MicroConfig) -> None:
    """Append the way of a tile's weights into the array."""
    lines = config.rows + config.rows % 2
    a.alu("MINI", _LENGTH, _K_LEFT, config.rows)
    a.alu("MINI", _COLUMNS, _N_LEFT, config.cols)
    a.constant(_HELP, lines)
    a.alu("SUB", _BLANKS, _HELP, _LENGTH)
    a.constant(_HELP, config.cols)
    a.alu("SUB", _MISSING, _HELP, _COLUMNS)
    a.move(_PLACE, _B_TILE)
    a.label("MATMUL weights")
    a.move(_POINT, _PLACE)
    a.alu("ADD", _PLACE, _PLACE, _B_COLUMN)
    a.alu("SLTI", _HELP, _LENGTH, config.rows)
    a.branch("BNE", _HELP, ZERO, "MATMUL part")
    for _ in range(config.rows):
        a.emit("WEIGHT", ra=_POINT, rb=_B_STEP)
    if lines > config.rows:
        a.emit("BLANK")
    a.loop(_COLUMNS, "MATMUL weights")
    a.jump("MATMUL missing")
    a.label("MATMUL part")
    a.move(_HELP, _LENGTH)
    a.label("MATMUL weight")
    a.emit("WEIGHT", ra=_POINT, rb=_B_STEP)
    a.loop(_HELP, "MATMUL weight")
    a.move(_HELP, _BLANKS)
    a.label("MATMUL blank")
    a.emit("BLANK")
    a.loop(_HELP, "MATMUL blank")
    a.loop(_COLUMNS, "MATMUL weights")
    a.label("MATMUL missing")
    a.branch("BEQ", _MISSING, ZERO, "MATMUL stream")
    for _ in range(lines):
        a.emit("BLANK")
    a.alu("ADDI", _MISSING, _MISSING, -1)
    a.jump("MATMUL missing")


def _stream(a: Assembler, config: MicroConfig) -> None:
    """Append the way of m rows of activations, whose sums go to the accumulators."""
    a.label("MATMUL stream")
    a.move(_PLACE, _ACC_TILE)
    a.move(_BLANKS, _A_TILE)
    a.move(_POINT, _A_TILE)
    a.move(_ROWS_LEFT, OPERANDS["m"])
    a.label("MATMUL row")
    for _ in range(config.rows + config.rows % 2):
        a.emit("ENTER", ra=_POINT, rb=_ONE)
    a.alu("ADD", _BLANKS, _BLANKS, OPERANDS["a_stride"])
    a.move(_POINT, _BLANKS)
    for _ in range(config.cols):
        a.emit("SUM", ra=_PLACE, rb=_ONE)
    a.loop(_ROWS_LEFT, "MATMUL row")
